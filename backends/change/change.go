package change

import (
	"bytes"
	"maps"
)

// Kind names a family of changes; one typed adapter observes, applies and
// reverts each.
type Kind string

// KindFile is everything that has a path: regular files, directories, symlinks.
const KindFile Kind = "file"

// Op says in one word what happens to the thing.
type Op string

// The operations, as `changes` prints them.
const (
	Added    Op = "added"
	Modified Op = "modified" // same type; content, mode or owner differs
	Deleted  Op = "deleted"
	Replaced Op = "replaced" // another file type stands under the same name
)

// Change is one typed difference between view and host.
type Change struct {
	Kind Kind `json:"kind"`
	Op   Op   `json:"op"`
	Path Path `json:"path"`
	// Old is the origin: what the host had when the change was derived. Nil when
	// the path did not exist.
	Old *Entry `json:"old,omitempty"`
	// New is what is wanted. Nil for a deletion. A deleted directory is listed
	// with every entry below it, children first.
	New *Entry `json:"new,omitempty"`
}

// FileType is the type of a directory entry.
type FileType string

// The file types that can be planned. Every other type is a [Blocker].
const (
	Regular   FileType = "file"
	Directory FileType = "directory"
	Symlink   FileType = "symlink"
	Fifo      FileType = "fifo"
)

// Entry is the content and the metadata of one path.
type Entry struct {
	Type FileType `json:"type"`
	Mode uint32   `json:"mode"` // permission bits with setuid, setgid, sticky: 07777
	UID  uint32   `json:"uid"`
	GID  uint32   `json:"gid"`
	Size int64    `json:"size,omitempty"` // bytes, regular files only
	// MTime is nanoseconds since 1970, UTC. It is applied and restored, but no
	// part of any digest: a file touched without other change is no change. A time
	// that does not fit is the nearest that does; see [Nanos].
	MTime int64 `json:"mtime,omitempty"`
	// SHA256 is the lower-case hex digest of a regular file's bytes.
	SHA256 string `json:"sha256,omitempty"`
	Target Path   `json:"target,omitempty"` // of a symlink, as readlink(2) returns it
	// Xattrs are the extended attributes that a plan carries, by full name and in
	// the kernel's own bytes: POSIX ACLs (system.posix_acl_access, …_default),
	// file capabilities (security.capability, in the form of xattr.Canonical),
	// user.* and trusted.*. Security labels and overlayfs's bookkeeping are never
	// among them: a label comes from the place, not from the view. acl(5),
	// capabilities(7), xattr(7).
	Xattrs Xattrs `json:"xattrs,omitempty"`
	// Link makes the entry another name of one regular file: the path, first in
	// byte order, of the wanted hard-link group that it belongs to. The first
	// name itself has none, and every name of a group is a change of its plan
	// with the same content and metadata. Wanted entries only.
	Link Path `json:"link,omitempty"`
	// Sparse says that a regular file occupies less than its size, so that blocks
	// of zeros are to stay holes. No part of any digest or comparison.
	Sparse bool `json:"sparse,omitempty"`
	// Allocated is what a sparse file occupies, in bytes, for the sum of what a
	// plan needs; 0 where nobody looked. No part of any digest or comparison.
	Allocated int64 `json:"allocated,omitempty"`
	// Links is the link count of a regular file on the host; more than one means
	// that replacing it breaks a hard-link group. Origin only, not digested.
	Links uint64 `json:"links,omitempty"`
	// ID says which object on which filesystem this was, for cheap comparison:
	// equal ID, size and change time means equal content. Origin only, not digested.
	ID *Identity `json:"id,omitempty"`
}

// Identity is what statx(2) says of an object's place and last change.
type Identity struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	CTime int64  `json:"ctime"` // nanoseconds since 1970
}

// Same reports whether two entries are equal in everything that one look at them
// can tell and a plan can hold: type, mode, owner, content or target, extended
// attributes. Times, holes and identity do not count, and neither does Link:
// which names are one file is seen by comparing identities.
func (e *Entry) Same(o *Entry) bool {
	if e == nil || o == nil {
		return e == o
	}
	return e.Type == o.Type && e.Mode == o.Mode && e.UID == o.UID && e.GID == o.GID &&
		e.SHA256 == o.SHA256 && e.Target == o.Target && maps.EqualFunc(e.Xattrs, o.Xattrs, bytes.Equal)
}

// Blocker is a difference, or a circumstance, that no plan can express.
type Blocker struct {
	// What is a stable word for programs: "socket", "device", "fifo", "xattr",
	// "origin-uncertain", "conflict", "twin-route", "twin-link", "dns", …
	What    string `json:"what"`
	Subject string `json:"subject"`       // the path, link, route, … already escaped
	Reason  string `json:"reason"`        // one clause, lower case, no period
	Fix     string `json:"fix,omitempty"` // the command that gets past it
}
