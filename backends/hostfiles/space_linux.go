package hostfiles

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// volumeID is a filesystem, or the part of it that a project quota bounds:
// statfs(2) answers for that part in a directory that passes its project on.
type volumeID struct {
	dev     uint64
	project uint32
}

// volume adds up what a plan needs of one filesystem.
type volume struct {
	some    change.Path // one of the targets on it
	fs      unix.Statfs_t
	bytes   uint64
	inodes  uint64
	refused bool // for what it is; its space does not matter
}

// exchanging lists the filesystems known to exchange two names atomically and to
// keep both through a crash. Others are refused by name: the kernel answers
// EINVAL only at the swap, when half of a plan may be done.
var exchanging = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:      true, // ext2 and ext3 too
	unix.XFS_SUPER_MAGIC:       true,
	unix.BTRFS_SUPER_MAGIC:     true,
	unix.F2FS_SUPER_MAGIC:      true,
	unix.TMPFS_MAGIC:           true,
	unix.OVERLAYFS_SUPER_MAGIC: true,
	0x2fc12fc1:                 true, // ZFS, from OpenZFS 2.2
	0xca451a4e:                 true, // bcachefs
}

// need adds what a change will take in directory d's filesystem, and refuses a
// filesystem that cannot take it at all.
func (f *preflight) need(c *change.Change, d change.Path) error {
	v, err := f.volume(d)
	if err != nil {
		return err
	}
	if v.some == "" {
		v.some = d
	}
	if c.New == nil || c.New.Link != "" { // another name takes nothing
		return nil
	}
	block, size := uint64(max(v.fs.Bsize, 512)), uint64(c.New.Size)
	if c.New.Sparse {
		size = min(size, max(uint64(c.New.Allocated), block))
	}
	v.inodes++
	v.bytes += (size + block - 1) / block * block
	if c.New.Type != change.Regular {
		v.bytes += block
	}
	return nil
}

func (f *preflight) volume(d change.Path) (*volume, error) {
	if v, ok := f.homes[d]; ok {
		return v, nil
	}
	n, fd, err := f.anchors.enter(d)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	id := volumeID{dev: n.dev}
	if project, inherits := project(fd); inherits {
		id.project = project
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, fmt.Errorf("statfs: %w", err)
	}
	v := f.volumes[id]
	if v == nil {
		v = &volume{fs: fs}
		f.volumes[id] = v
	}
	f.homes[d] = v
	// Read-only is a mount's word, and one filesystem may be mounted twice.
	if !f.mounts[[2]uint64{n.dev, n.mount}] {
		f.mounts[[2]uint64{n.dev, n.mount}] = true
		f.mounted(d, &fs, v)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return v, nil
	}
	a, err := f.anchors.of(d)
	if err == nil && a.at == "" {
		f.block("permission", d, "no directory above it on its mount is writable by us alone", "")
	}
	return v, err
}

func (f *preflight) mounted(d change.Path, fs *unix.Statfs_t, v *volume) {
	switch {
	case fs.Flags&unix.ST_RDONLY != 0:
		f.block("read-only", d, "its filesystem is mounted read-only", "")
	case !exchanging[fs.Type]:
		v.refused = true
		f.block("filesystem", d, fmt.Sprintf("its filesystem (type %#x) is not known to exchange two names atomically", fs.Type), "")
	}
}

// space compares, per filesystem, what is needed and 5 % more with what is free
// for ordinary users: the reserve of root is for emergencies.
func (f *preflight) space() {
	for _, v := range f.volumes {
		if v.refused {
			continue
		}
		need, free := v.bytes+v.bytes/20, v.fs.Bavail*uint64(max(v.fs.Bsize, 1))
		if need > free {
			f.block("space", v.some, fmt.Sprintf("its filesystem needs %d bytes, %d are free", need, free), "")
		}
		if v.fs.Files > 0 && v.inodes+1 > v.fs.Ffree {
			f.block("space", v.some, fmt.Sprintf("its filesystem needs %d inodes, %d are free", v.inodes+1, v.fs.Ffree), "")
		}
	}
}
