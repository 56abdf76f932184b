// Package builder makes a view: it lays overlays over the host's mounts, puts a
// private /dev, /run, /proc and /sys among them, and starts PID 1 on top.
//
// A builder is one locked thread of the holder with a mount namespace of its
// own, thrown away when PID 1 is ready. It is real root, and its mount namespace
// belongs to the initial user namespace; PID 1 takes a copy of it from inside
// the view's user namespace, which locks every mount. A thread instead of a
// process saves an exec and a Go start on every rebuild.
//
// One builder makes every shape of view ([Request]): the environment's own, and
// the throw-away ones that canaries run in.
package builder
