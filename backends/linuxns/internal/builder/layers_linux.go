package builder

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// piece is one prepared mount: attached in scratch, without those below it, so
// that an alias can be taken of what another mount covers.
type piece struct {
	mountplan.Entry
	tree  int // the attached mount, or -1
	attrs uint64
}

// tree stages every layer and puts the view's root together.
func (b *build) tree(plan mountplan.Plan) error {
	pieces := make([]piece, len(plan.Entries))
	defer func() {
		for _, p := range pieces {
			if p.tree > 0 {
				unix.Close(p.tree)
			}
		}
	}()
	for i, e := range plan.Entries {
		pieces[i] = piece{Entry: e, tree: -1, attrs: attributes(e.Mount)}
	}
	if err := b.slow(pieces, plan); err != nil {
		return err
	}
	for i := range pieces {
		p := &pieces[i]
		if p.Treatment != mountplan.Layer || p.tree >= 0 {
			continue
		}
		if i == 0 {
			if err := b.stageHere(p, 0); err != nil {
				return fmt.Errorf("layer /: %w", err)
			}
			if err := b.attachRoot(p); err != nil {
				return err
			}
			continue
		}
		if err := b.stageHere(p, i); errors.Is(err, errSingle) {
			p.Treatment = mountplan.Copy
		} else if err != nil {
			p.exclude(err)
		}
	}
	for i := range pieces {
		if err := b.hang(i, pieces); err != nil {
			return err
		}
	}
	return nil
}

// hang puts a piece where it belongs, or hides what is there when it cannot.
func (b *build) hang(i int, pieces []piece) error {
	p := &pieces[i]
	if i > 0 {
		err := b.attach(p, pieces)
		if p.Implied {
			// What it would show is then not in the view under this name either.
			return nil
		}
		if err != nil {
			p.exclude(err)
		}
		if p.Treatment == mountplan.Excluded && p.Cover {
			if err := b.coverPiece(i, pieces); err != nil {
				return fmt.Errorf("cover %s: %w", p.Point, err)
			}
		}
	}
	b.view.Mounts = append(b.view.Mounts, backends.Mount{
		Point: change.Escape(p.Point), FS: change.Escape(p.FS), Treatment: p.Treatment, Reason: change.Escape(p.Reason),
	})
	return nil
}

func (p *piece) exclude(err error) {
	p.Treatment, p.Reason, p.Cover = mountplan.Excluded, err.Error(), true
}

// attributes are what the host's mount forbids; the view forbids the same, or a
// command would succeed here that fails there.
func attributes(m mountplan.Mount) uint64 {
	a := uint64(unix.MOUNT_ATTR_NODEV)
	if m.ReadOnly {
		a |= unix.MOUNT_ATTR_RDONLY
	}
	if m.NoSuid {
		a |= unix.MOUNT_ATTR_NOSUID
	}
	if m.NoExec {
		a |= unix.MOUNT_ATTR_NOEXEC
	}
	if m.NoSymFollow {
		a |= unix.MOUNT_ATTR_NOSYMFOLLOW
	}
	return a
}

// attachRoot makes the first piece the root that the others are attached below.
func (b *build) attachRoot(p *piece) error {
	if err := unix.Mkdirat(b.scratch, "root", 0o755); err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	place, err := mounts.Place(b.scratch, "root", false)
	if err != nil {
		return err
	}
	defer unix.Close(place)
	t, err := mounts.Clone(p.tree, "", false)
	if err != nil {
		return err
	}
	if err := mounts.Set(t, p.attrs); err != nil {
		unix.Close(t)
		return err
	}
	p.sealed()
	if err := mounts.Attach(t, place); err != nil {
		return err
	}
	b.root, err = unix.Openat(b.scratch, "root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// attach puts one piece at its place.
func (b *build) attach(p *piece, all []piece) error {
	if p.Treatment == mountplan.Excluded {
		return nil
	}
	place, err := mounts.Place(b.root, p.Point, false)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return errors.New("its mount point is gone in the view")
	}
	if err != nil {
		return err
	}
	defer unix.Close(place)
	var t int
	switch p.Treatment {
	case mountplan.Copy:
		t, err = b.copyFile(p)
	case mountplan.Alias:
		if of := all[p.Of]; of.Treatment == mountplan.Copy { // one copy for both
			t, err = b.copyFile(&of)
			p.Treatment, p.attrs = mountplan.Copy, p.attrs|of.attrs&unix.MOUNT_ATTR_RDONLY
		} else {
			t, err = alias(p, of)
		}
	default:
		t, err = mounts.Clone(p.tree, "", false)
	}
	if err != nil {
		return err
	}
	if err := mounts.Set(t, p.attrs); err != nil {
		unix.Close(t)
		return err
	}
	p.sealed()
	return mounts.Attach(t, place)
}

// sealed says of a layer that cannot be written why that is so.
func (p *piece) sealed() {
	if p.attrs&unix.MOUNT_ATTR_RDONLY != 0 && p.Treatment == mountplan.Layer {
		p.Treatment, p.Reason = mountplan.ReadOnly, "read-only on the host"
	}
}

// alias clones the part of the source that the alias shows.
func alias(p *piece, of piece) (int, error) {
	if of.tree < 0 {
		return -1, fmt.Errorf("%s is not in the view: %s", of.Point, of.Reason)
	}
	at, err := mounts.Place(of.tree, p.Rel, true)
	if errors.Is(err, unix.ENOENT) {
		return -1, fmt.Errorf("%s, which it shows, was removed in the view", path.Join(of.Point, p.Rel))
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return mounts.Clone(at, "", false)
}

// stageHere makes a piece's overlay and attaches it in scratch.
func (b *build) stageHere(p *piece, i int) error {
	t, err := b.stage(p, i)
	if err != nil {
		return err
	}
	return b.keep(p, strconv.Itoa(i), t)
}

// stage makes the overlay of one host mount, detached.
func (b *build) stage(p *piece, i int) (int, error) {
	n := strconv.Itoa(i)
	if err := unix.Fchdir(b.scratch); err != nil {
		return -1, fmt.Errorf("enter scratch directory: %w", err)
	}
	l, err := b.lower(p, n)
	if err != nil {
		return -1, err
	}
	if l.unmapped != nil && i > 0 {
		return b.shown(p, n, l.unmapped)
	}
	if l.unmapped != nil {
		return -1, l.unmapped
	}
	if p.ReadOnly && (b.Throwaway || !b.holds(p.Key)) {
		return b.lowerOnly(n, "l"+n)
	}
	if err := b.upper(p, n, l); err != nil {
		return -1, err
	}
	var t int
	err = mounts.As(b.Mode.Shift, func() error {
		t, err = mounts.New("overlay", unix.MOUNT_ATTR_NODEV, overlay("l"+n, "u"+n)...)
		return err
	})
	if err != nil && i > 0 {
		return b.shown(p, n, err)
	}
	if err != nil {
		return -1, err
	}
	if err := writable(t); err != nil {
		unix.Close(t)
		return -1, err
	}
	return t, nil
}

// holds reports whether there is a layer with content. That is shown also where
// nothing can be added to it: it was made when the host could still be written.
func (b *build) holds(key string) bool {
	bare, err := empty(b.Dir.Path(envdir.Layers, key, "upper"))
	return err == nil && !bare
}

// overlay names every option: distributions compile in other defaults, and
// metacopy or redirect_dir would leave things in an upper that no reader
// without the overlay understands. The names are relative to scratch, so
// nothing in them needs escaping.
func overlay(lower, upper string) []string {
	return []string{
		"lowerdir=" + lower, "upperdir=" + upper + "/upper", "workdir=" + upper + "/work",
		"redirect_dir=nofollow", "metacopy=off", "index=off", "xino=auto",
	}
}

// writable reports an overlay that came up read-only, which it does without an
// error when it cannot use its work directory.
func writable(tree int) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(tree, &fs); err != nil {
		return fmt.Errorf("look at overlay: %w", err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return errors.New("the overlay came up read-only: its work directory cannot be used")
	}
	return nil
}

// shown falls back to an overlay without an upper: the tree can be read, its
// sockets stay dead, which those below a bind would not be.
func (b *build) shown(p *piece, n string, why error) (int, error) {
	if err := os.Mkdir("s"+n, 0o755); err != nil {
		return -1, err
	}
	raw, err := mounts.Clone(unix.AT_FDCWD, p.Point, false)
	if err != nil {
		return -1, err
	}
	if err := b.attachScratch(raw, "s"+n); err != nil {
		return -1, err
	}
	t, err := b.lowerOnly(n, "s"+n)
	if err != nil {
		return -1, fmt.Errorf("%w; without a layer: %w", why, err)
	}
	p.Treatment, p.Reason = mountplan.ReadOnly, p.FS+" cannot be layered: "+why.Error()
	p.attrs |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID
	return t, nil
}

// lowerOnly makes an overlay that has no upper.
func (b *build) lowerOnly(n, lower string) (int, error) {
	if err := os.Mkdir("e"+n, 0o755); err != nil {
		return -1, err
	}
	// An overlay without upper takes two lowers, and the names in both show.
	return mounts.New("overlay", unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_RDONLY, "lowerdir="+lower+":e"+n)
}

// keep attaches a finished overlay in scratch and remembers it.
func (b *build) keep(p *piece, n string, t int) error {
	if err := unix.Mkdirat(b.scratch, "m"+n, 0o755); err != nil {
		unix.Close(t)
		return err
	}
	if err := b.attachScratch(t, "m"+n); err != nil {
		return err
	}
	var err error
	p.tree, err = unix.Openat(b.scratch, "m"+n, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

func (b *build) attachScratch(t int, name string) error {
	place, err := mounts.Place(b.scratch, name, false)
	if err != nil {
		unix.Close(t)
		return err
	}
	defer unix.Close(place)
	return mounts.Attach(t, place)
}
