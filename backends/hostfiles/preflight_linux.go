package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Preflight implements [backends.Host]. It only reads, but for a file without a
// name where only the filesystem itself can tell what it holds, and it names
// everything in the way, not only the first thing. That a replaced file has other hard
// links is no obstacle: the plan says it.
func (h *Host) Preflight(ctx context.Context, cs []change.Change) ([]change.Blocker, error) {
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	f := &preflight{
		tree: t, plan: map[change.Path]*change.Change{}, anchors: newAnchors(t, h.base),
		parents: map[change.Path]bool{}, volumes: map[volumeID]*volume{},
		homes: map[change.Path]*volume{}, mounts: map[[2]uint64]bool{},
	}
	for i := range cs {
		if err := check(cs[i]); err != nil {
			f.block("unsupported", cs[i].Path, err.Error(), "")
			continue
		}
		f.plan[cs[i].Path] = &cs[i]
	}
	wrong := checkNames(cs)
	for i := range cs {
		if err := wrong[cs[i].Path]; err != nil {
			f.block("unsupported", cs[i].Path, err.Error(), "")
			delete(f.plan, cs[i].Path)
		}
	}
	for i := range cs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if f.plan[cs[i].Path] != &cs[i] {
			continue
		}
		if err := f.look(&cs[i]); err != nil {
			return nil, fmt.Errorf("preflight %s: %w", cs[i].Path, err)
		}
	}
	if err := f.together(cs); err != nil {
		return nil, fmt.Errorf("preflight: %w", err)
	}
	f.space()
	return f.found, nil
}

// preflight collects what stands in the way of one plan.
type preflight struct {
	*tree
	plan    map[change.Path]*change.Change
	anchors *anchors
	parents map[change.Path]bool // already looked at
	volumes map[volumeID]*volume
	homes   map[change.Path]*volume
	mounts  map[[2]uint64]bool // device and mount, already looked at
	found   []change.Blocker
}

func (f *preflight) block(what string, p change.Path, reason, fix string) {
	f.found = append(f.found, change.Blocker{What: what, Subject: p.String(), Reason: reason, Fix: fix})
}

// look checks one change: its directory, then what stands there.
func (f *preflight) look(c *change.Change) error {
	up, _ := split(c.Path)
	if maker := f.maker(up); maker != "" {
		// The directory is made by the plan; only content has to fit. Where it cannot
		// be made was named with it.
		err := f.need(c, maker)
		if err == nil {
			err = f.holds(c, maker)
		}
		if absent(err) || errors.Is(err, unix.ELOOP) {
			return nil
		}
		return err
	}
	if c.Path != "/" {
		dir, _, err := f.parent(c.Path)
		switch {
		case errors.Is(err, unix.ELOOP):
			f.block("conflict", c.Path, "a directory above it is a symlink on the host", "")
			return nil
		case err != nil && absent(err):
			f.block("conflict", c.Path, "the directory above it is not on the host", "")
			return nil
		case err != nil:
			return err
		}
		if err := f.directory(up, dir); err != nil {
			return err
		}
	}
	if err := f.target(c); err != nil {
		return err
	}
	if actOf(*c) == actInPlace {
		return f.inPlace(c)
	}
	return errors.Join(f.need(c, up), f.holds(c, up))
}

// inPlace checks what the directory itself has to bear. If it is not there that
// was named already.
func (f *preflight) inPlace(c *change.Change) error {
	err := f.writable(c.Path)
	if err == nil {
		err = f.holds(c, c.Path)
	}
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	return err
}

// maker returns the existing directory in which the plan begins to make d, or
// nothing when d is not the plan's.
func (f *preflight) maker(d change.Path) change.Path {
	var top change.Path
	for p := d; p != "/"; p, _ = split(p) {
		if c := f.plan[p]; c != nil && c.New != nil && c.New.Type == change.Directory && actOf(*c) != actInPlace {
			top = p
		}
	}
	if top == "" {
		return ""
	}
	up, _ := split(top)
	return up
}

// directory checks, once, the directory in which entries are exchanged.
func (f *preflight) directory(d change.Path, fd int) error {
	if f.parents[d] {
		return nil
	}
	f.parents[d] = true
	n, err := stat(fd, "")
	if err != nil {
		return err
	}
	if word := protected(fd, n); word != "" {
		f.block("immutable", d, "the directory is "+word, "chattr -"+word[:1]+" "+quote(d))
	}
	if unix.Faccessat2(fd, "", unix.W_OK|unix.X_OK, unix.AT_EACCESS|unix.AT_EMPTY_PATH) == unix.EACCES {
		f.block("permission", d, "the directory is not writable by this user", "")
	}
	return nil
}

// target checks what stands at the path against the origin.
func (f *preflight) target(c *change.Change) error {
	now, err := f.observe(c.Path, c.Old)
	switch {
	case errors.Is(err, errBusy):
		f.block("conflict", c.Path, "it is being written", "")
		return nil
	case errors.Is(err, unix.EACCES):
		f.block("permission", c.Path, "it cannot be read by this user", "")
		return nil
	}
	if err != nil {
		return err
	}
	if !now.Same(c.Old) {
		f.block("conflict", c.Path, fmt.Sprintf("the host has %s, the plan was made from %s", unlike(now, c.Old), describe(c.Old)), "")
		return nil
	}
	f.owner(c)
	if now == nil {
		return nil
	}
	n, err := f.lstat(c.Path)
	if err != nil {
		return err
	}
	if n.attrs&unix.STATX_ATTR_MOUNT_ROOT != 0 && actOf(*c) != actInPlace {
		f.block("mount-point", c.Path, "something is mounted on it", "umount "+quote(c.Path))
	}
	dir, base, err := f.at(c.Path)
	if err != nil {
		return err
	}
	if up, err := f.above(dir); err != nil {
		return err
	} else if n.attrs&unix.STATX_ATTR_MOUNT_ROOT == 0 && n.dev != up.dev && actOf(*c) != actInPlace {
		// An overlay over several filesystems without xino: a file's numbers change
		// when it is copied up, which the exchange itself would do. Or a subvolume of
		// btrfs, which is a device of its own.
		f.block("filesystem", c.Path, "it is a subvolume, or its inode number does not last, so nothing could be recognised again", "")
	}
	if word := flagged(dir, base, n); word != "" {
		f.block("immutable", c.Path, "it is "+word, "chattr -"+word[:1]+" "+quote(c.Path))
	}
	if actOf(*c) == actInPlace {
		return nil
	}
	up, _ := split(c.Path)
	if err := f.returns(c, up, dir, base); err != nil || now.Type != change.Directory {
		return err
	}
	if v, err := f.volume(c.Path); err != nil {
		return err
	} else if v.fs.Type == unix.OVERLAYFS_SUPER_MAGIC && !f.carried(c.Path) {
		// EXDEV for a directory that exists in a lower layer, unless the overlay was
		// mounted with redirect_dir; from above the layers cannot be told apart.
		f.block("filesystem", c.Path, "a directory on an overlay cannot be moved away whole", "")
	}
	return f.strangers(c.Path, dir, base)
}

// carried reports that a directory above goes, and this with it.
func (f *preflight) carried(p change.Path) bool {
	up, _ := split(p)
	c := f.plan[up]
	return c != nil && c.Old != nil && c.Old.Type == change.Directory && actOf(*c) != actInPlace
}

// at is parent for any path, the root included.
func (f *preflight) at(p change.Path) (int, string, error) {
	if p == "/" {
		return f.root, ".", nil
	}
	return f.parent(p)
}

// owner checks, for an ordinary user, that the wanted owner can be given and
// that what is made can be looked at when it is taken back.
func (f *preflight) owner(c *change.Change) {
	uid := os.Geteuid()
	if uid == 0 || c.New == nil {
		return
	}
	need := map[change.FileType]uint32{change.Regular: 0o400, change.Directory: 0o700}[c.New.Type]
	switch {
	case c.New.UID != uint32(uid):
		f.block("permission", c.Path, fmt.Sprintf("only root can give it to uid %d", c.New.UID), "")
	case c.New.Mode&need != need:
		f.block("permission", c.Path, fmt.Sprintf("only root could take mode %04o back", c.New.Mode), "")
	}
}

// strangers finds entries in a directory that goes which the plan does not know,
// such as logs and caches that no plan contains.
func (f *preflight) strangers(p change.Path, dir int, base string) error {
	list, err := names(dir, base)
	if err != nil {
		return err
	}
	for _, n := range list {
		q := join(p, n)
		if c := f.plan[q]; c == nil || c.New != nil {
			f.block("conflict", q, fmt.Sprintf("the plan removes %s but not this", p), "stage its deletion, or move it away")
		}
	}
	return nil
}

// flagged returns "immutable" or "append-only" for an object that chattr(1)
// protects: EPERM for every rename.
func flagged(dir int, name string, n *node) string {
	const both = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	if n.known&both == both || n.fmt != unix.S_IFREG && n.fmt != unix.S_IFDIR {
		return protected(-1, n)
	}
	fd, err := openFile(dir, name)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	return protected(fd, n)
}

// protected is flagged for an open object; the descriptor serves filesystems
// that do not answer by statx(2).
func protected(fd int, n *node) string {
	immutable := n.attrs&unix.STATX_ATTR_IMMUTABLE != 0
	appendOnly := n.attrs&unix.STATX_ATTR_APPEND != 0
	if n.known&unix.STATX_ATTR_IMMUTABLE == 0 && fd >= 0 {
		// FS_IMMUTABLE_FL and FS_APPEND_FL of linux/fs.h.
		if flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS); err == nil {
			immutable, appendOnly = flags&0x10 != 0, flags&0x20 != 0
		}
	}
	switch {
	case immutable:
		return "immutable"
	case appendOnly:
		return "append-only"
	}
	return ""
}
