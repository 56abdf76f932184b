// Package fsid tells filesystems apart.
//
// Device numbers do not: anonymous ones (btrfs, tmpfs) are given out again, and
// those of disks and loop devices move with a reboot or a cable. What is asked
// here is the identity that is written in the filesystem, or that the kernel
// made up for one that lives in memory.
package fsid
