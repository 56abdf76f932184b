// Package upper reads the overlay upper directories of an environment from the
// host's side and says, typed, what they change.
//
// An environment's directory holds one layer per mount of the host that its
// view can write to:
//
//	layers/<key>/source.json   which mount of the host is the lower
//	layers/<key>/{upper,work}  what the kernel keeps of the view's writes
//	origins.log                what the host had when each entry was first seen
//	staged.log                 paths staged by name, which no policy hides
//	hashes                     a cache of content hashes
//
// [Diff] compares each upper entry three ways: with the host now, and with the
// origin that [Record] wrote down. An entry that equals either is no change; an
// entry whose origin is not certain, or is no longer what the host has, blocks.
// Files, directories, symlinks and fifos have a type, with the extended
// attributes that backends/internal/xattr calls plannable; the names of one file
// of the upper become one file of the plan. What has no type blocks by name.
//
// The cost follows the entries of the upper, never the size of the host, except
// below a deleted directory, whose entries are all named. Each object is looked
// at once, and its attributes are listed once.
//
// Paths are never resolved through a symlink and never across a mount: lower
// and upper are walked by descriptor, side by side. An upper is read at any
// time, but [Remove] and [Settle] edit it, and the kernel keeps no promise about
// an upper that is edited below a live mount (writes then return success and
// vanish): their caller has unmounted the view.
package upper
