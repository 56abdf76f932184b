// Package faultfs mounts filesystems on a device that fails on demand.
//
// The device is a loop device over the only file of a FUSE filesystem. Whoever
// serves that filesystem decides about every read, write and flush of the
// device, so errors come up through the real block layer and the real ext4, xfs
// or btrfs above it: a journal that aborts, a filesystem that turns read-only, a
// write-back error that fsync(2) reports once and never again. The kernels that
// the tests run on have neither the device mapper nor fault injection.
//
// The device has a volatile write cache like a disk's. [FS.Cut] takes its power
// away: what was not flushed is lost.
//
// The server is a process of its own, a child outside of every namespace of the
// test. A filesystem is unmounted when the last process of its namespace exits;
// were the server a thread of that process, it could be the one that the
// unmounting waits for. It answers until the device is gone, also when nobody is
// left who could tell it to, and it dies by SIGKILL at any time, which ends every
// request with an error.
//
// It knows nothing of netsandbox and imports nothing of it.
package faultfs
