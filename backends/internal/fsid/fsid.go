package fsid

import "strings"

// Local lists the types of filesystems that cannot wait for another machine or
// process. What is not in it may hang whoever looks, for good.
var Local = []string{
	"bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs",
	"nilfs2", "overlay", "ramfs", "reiserfs", "squashfs", "tmpfs", "udf", "vfat", "xfs", "zfs",
}

// inMemory begins the identity of a filesystem that ends with the boot: it goes
// on with the boot's id and a slash.
const inMemory = "boot:"

// Same reports whether two identities are of one filesystem, and whether that
// can be told at all: an empty one is not known, and kernels before Linux 6.9
// answer in another form.
//
// One in memory is another after every boot. What was laid over it then is not
// over the wrong filesystem, it is over the one that took its place.
func Same(a, b string) (same, known bool) {
	ka, va, _ := strings.Cut(a, ":")
	kb, vb, _ := strings.Cut(b, ":")
	if a == "" || b == "" || ka != kb {
		return false, false
	}
	if ka+":" == inMemory {
		ba, _, _ := strings.Cut(va, "/")
		bb, _, _ := strings.Cut(vb, "/")
		return a == b || ba != bb, true
	}
	return a == b, true
}
