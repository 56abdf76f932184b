// Package harden bounds what the processes of a view can do to the machine.
//
// By default that is the work of a user namespace whose root is not the
// kernel's root, and this package only narrows the kernel surface that such a
// namespace opens. Where it cannot be had ("caps"), dropped capabilities, a
// system-call denylist and masks over /proc and /sys take its place. One
// [Mode] holds all of the difference.
package harden
