// Package manifest takes an exact picture of a tree, as text.
//
// A test takes one before and one after and compares the lines. The picture
// holds whatever a program, or an administrator with ls(1), getfacl(1),
// getcap(8), lsattr(1) and filefrag(8), could tell: type, mode, owner, time,
// content, link target, every extended attribute, which names are one object and
// how many it has, where its holes are, whether it is immutable. Left out is what
// no copy could keep: the bookkeeping of overlayfs, change and access times, the
// link count and the size of directories, and blocks (st_blocks counts a file's
// metadata too, so equal files may differ in it; the map of holes tells more).
//
// It never waits: a fifo is looked at, not opened. It walks by descriptors, so
// no path is too long, and it follows no symlink.
package manifest
