// Package mountplan decides, from mountinfo alone, how each mount of the host
// appears in a view.
//
// It is pure: it takes a table and returns a table. It asks the kernel nothing
// about a mount, because a stat of a dead NFS server hangs for good and one of
// an automount point mounts something. Package builder carries the plan out and
// reports what became of it.
package mountplan
