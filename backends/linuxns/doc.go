// Package linuxns makes views from what a Linux kernel has: namespaces, overlay
// mounts and a network in user space.
//
// A [Backend] creates environments and opens their [backends.View]. Behind each
// environment stands one holder process (internal/holder), which keeps the
// namespaces as descriptors, owns the twin, and builds the view when a command
// arrives; PID 1 of the view (internal/initd) runs the commands. This package is
// the client of the holder and the prober of the machine: it asks, over a socket,
// and touches no layer and no namespace itself.
//
// It refuses what it could only half do: a state directory that cannot hold
// layers, a mount that cannot be layered and might be written through, an
// environment that belongs to another uid. What is degraded, such as views
// without idmapped mounts, is said at create and by doctor.
//
// A view cannot be turned into a [backends.Host], and nothing here implements
// one: what changes the real machine lives in the host adapters, which only the
// transaction drives.
package linuxns
