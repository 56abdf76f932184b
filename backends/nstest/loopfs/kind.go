package loopfs

import "github.com/netsandbox/netsandbox/backends/nstest"

// Kind is a filesystem that can be made.
type Kind string

// The kinds. Btrfs and XFS refuse to be small: an image grows to what they ask
// for, and is sparse.
const (
	Ext4     Kind = "ext4"
	XFS      Kind = "xfs"
	Btrfs    Kind = "btrfs"
	Squashfs Kind = "squashfs" // read-only; holds a copy of Options.Tree
)

// recipe is how an image of one kind is made; the options of the caller come
// before the image.
type recipe struct {
	mkfs []string
	size int64 // the least that mkfs takes
}

var recipes = map[Kind]recipe{
	Ext4:     {[]string{"mkfs.ext4", "-q", "-F"}, 8 << 20},
	XFS:      {[]string{"mkfs.xfs", "-q", "-f"}, 300 << 20},
	Btrfs:    {[]string{"mkfs.btrfs", "-q", "-f"}, 128 << 20},
	Squashfs: {[]string{"mksquashfs"}, 0},
}

// Req is what a test needs to make one: its program.
func (k Kind) Req() nstest.Req { return nstest.Tool(recipes[k].mkfs[0]) }

// Options says what else is special about a filesystem. Its zero value is an
// ordinary one.
type Options struct {
	At    string   // mount here, on a directory that exists; by default a new one
	Flags uintptr  // MS_RDONLY, MS_NOEXEC, …
	Data  string   // options of the filesystem: "subvol=a,nodatacow"
	Mkfs  []string // more arguments for the program that makes it
	Tree  string   // Squashfs: the directory to copy
}
