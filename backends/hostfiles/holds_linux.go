package hostfiles

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// archivable bounds an original's attributes in the second copy: readers of tar
// files take a megabyte of records and no more.
const archivable = 1<<20 - 64<<10

// holds checks that the filesystem of directory d can hold the attributes that a
// change wants, and the archive those of the original.
func (f *preflight) holds(c *change.Change, d change.Path) error {
	if c.Old != nil && actOf(*c) != actInPlace && weight(c.Old.Xattrs) > archivable {
		f.block("xattr", c.Path, "its extended attributes are more than the second copy can hold", "")
	}
	if c.New == nil || len(c.New.Xattrs) == 0 {
		return nil
	}
	fd, err := f.open(d, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, name := range slices.Sorted(maps.Keys(c.New.Xattrs)) {
		switch why, err := refuses(fd, name); {
		case err != nil:
			return err
		case why != "":
			f.block("xattr", c.Path, why, "")
			return nil
		}
	}
	return f.fits(c, d, fd)
}

// refuses says why an attribute could not be set in a directory: what cannot be
// asked for (getxattr(2): ENOTSUP) cannot be set either.
func refuses(dir int, name string) (string, error) {
	if os.Geteuid() != 0 && (strings.HasPrefix(name, "trusted.") || name == xattr.Capability) {
		return "only root can set " + change.Escape(name), nil
	}
	_, err := unix.Lgetxattr(xattr.Path(dir, ""), name, nil)
	switch {
	case errors.Is(err, unix.ENOTSUP) && (name == xattr.ACL || name == xattr.DefaultACL):
		return "its filesystem holds no ACLs, or is mounted without them", nil
	case errors.Is(err, unix.ENOTSUP):
		return "its filesystem cannot hold the attribute " + change.Escape(name), nil
	case err == nil, errors.Is(err, unix.ENODATA), errors.Is(err, unix.EACCES):
		return "", nil
	}
	return "", fmt.Errorf("ask for %s: %w", change.Escape(name), err)
}

// weight is about what attributes take.
func weight(attrs map[string][]byte) int {
	n := 0
	for k, v := range attrs {
		n += len(k) + len(v) + 32
	}
	return n
}

// fits asks the filesystem itself whether it takes attributes of such a size:
// ext4 has one block for all of a file's unless it was made with ea_inode, btrfs
// a part of a node, xfs 64 KiB for each. A file without a name is all it takes,
// which nobody can meet and which is gone when it is closed.
func (f *preflight) fits(c *change.Change, d change.Path, dir int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(dir, &fs); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if weight(c.New.Xattrs) <= int(max(fs.Bsize, 1024))/2 {
		return nil
	}
	a, err := f.anchors.of(d)
	if err != nil || a.at == "" {
		return err
	}
	fd, err := f.open(a.at, unix.O_TMPFILE|unix.O_WRONLY)
	if err != nil {
		return nil // staging will tell
	}
	defer unix.Close(fd)
	for name, value := range c.New.Xattrs {
		if name == xattr.DefaultACL {
			continue // a directory's only
		}
		switch err := unix.Fsetxattr(fd, name, value, 0); err {
		case unix.ENOSPC, unix.E2BIG, unix.ERANGE, unix.EDQUOT:
			f.block("xattr", c.Path, fmt.Sprintf("its filesystem cannot hold its extended attributes (%d bytes)", weight(c.New.Xattrs)), "")
			return nil
		}
	}
	return nil
}

// together checks that the names of each wanted hard-link group can be names of
// one file: link(2) crosses no mount, subvolume or project quota.
func (f *preflight) together(cs []change.Change) error {
	for i := range cs {
		c := &cs[i]
		if f.plan[c.Path] != c || c.New == nil || c.New.Link == "" {
			continue
		}
		there, err := f.zone(c.New.Link)
		if err != nil {
			return err
		}
		here, err := f.zone(c.Path)
		if err != nil {
			return err
		}
		if here != nil && there != nil && *here != *there {
			f.block("hard-link", c.Path, fmt.Sprintf(
				"it is to be one file with %s, which is on another mount, subvolume or project quota", c.New.Link), "")
		}
	}
	return nil
}

// zone is that of the directory in which p is, or in which the plan begins to
// make it; nil where there is none, which was named already.
func (f *preflight) zone(p change.Path) (*zone, error) {
	d, _ := split(p)
	if maker := f.maker(d); maker != "" {
		d = maker
	}
	a, err := f.anchors.of(d)
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	return &a.zone, err
}

// returns checks that what stands at the target could come back once it is away:
// a directory that passes on its project takes nothing in from another one
// (EXDEV; ext4_rename in fs/ext4/namei.c, xfs_rename in fs/xfs/xfs_inode.c).
func (f *preflight) returns(c *change.Change, up change.Path, dir int, base string) error {
	a, err := f.anchors.of(up)
	if err != nil || !a.zone.inherits || c.Old.Type != change.Regular && c.Old.Type != change.Directory {
		return err
	}
	fd, err := openFile(dir, base)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	if id, _ := project(fd); id != a.zone.project {
		f.block("project", c.Path, fmt.Sprintf("its project is %d, that of its directory is %d, and the kernel moves nothing between them", id, a.zone.project),
			fmt.Sprintf("chattr -p %d %s", a.zone.project, quote(c.Path)))
	}
	return nil
}

// writable checks the mount of a directory that is changed in place.
func (f *preflight) writable(p change.Path) error {
	fd, err := f.open(p, unix.O_PATH|unix.O_DIRECTORY)
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return nil // named already
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		f.block("read-only", p, "its filesystem is mounted read-only", "")
	}
	return nil
}
