package hostfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Stage implements [backends.Host]. Nothing that a program could read changes:
// every object is made complete in the hidden directory of its mount, and one
// flush per filesystem makes all of them durable.
func (h *Host) Stage(ctx context.Context, steps []backends.Step, wanted backends.Wanted) ([]backends.Step, error) {
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	steps = slices.Clone(steps)
	if err := t.makePlaces(steps); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	g := &stager{tree: t, wanted: wanted, tops: tops(steps), labels: map[change.Path]map[string][]byte{}}
	defer g.leave()
	for i := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if steps[i].Change.New == nil || steps[i].Place.Name == "" {
			continue
		}
		if err := g.stage(&steps[i]); err != nil {
			return nil, fmt.Errorf("stage %s: %w", steps[i].Change.Path, err)
		}
	}
	if err := g.finishDirs(steps); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	if err := t.flushStaged(steps, g.tops); err != nil {
		return nil, fmt.Errorf("stage: %w", err)
	}
	foresee(steps, time.Now().UnixNano())
	return steps, nil
}

// places returns the hidden directories of a transaction, sorted.
func places(steps []backends.Step) []change.Path {
	var dirs []change.Path
	for _, s := range steps {
		if s.Place.Dir != "" {
			dirs = append(dirs, s.Place.Dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// makePlaces makes the hidden directories. One that is there was begun by a
// Stage that died; nothing of it was ever swapped, so it starts again.
func (t *tree) makePlaces(steps []backends.Step) error {
	for _, d := range places(steps) {
		err := durable("mkdir "+string(d), func() error {
			up, base, err := t.parent(d)
			if err != nil {
				return err
			}
			// Root needs no permission bits to use it, and nobody else gets any. An
			// ordinary owner needs them.
			mode := uint32(0)
			if os.Geteuid() != 0 {
				mode = 0o700
			}
			return quietly(up, func() error {
				err := unix.Mkdirat(up, base, mode)
				if err == unix.EEXIST {
					if err = removeAll(up, base); err == nil {
						err = unix.Mkdirat(up, base, mode)
					}
				}
				if err != nil {
					return &os.PathError{Op: "mkdir", Path: d.String(), Err: err}
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		if _, err := t.place(d); err != nil {
			return err
		}
	}
	return nil
}

// stager makes the wanted objects of one Stage.
type stager struct {
	*tree
	wanted backends.Wanted
	tops   map[string]change.Path
	labels map[change.Path]map[string][]byte // of new objects, by the target's parent
	dir    int                               // the last directory made by us that was filled
	at     string
}

// where returns the directory and the name under which s is staged. That
// directory stays the stager's.
func (g *stager) where(s backends.Step) (int, string, error) {
	hidden, err := g.place(s.Place.Dir)
	if err != nil || s.Place.Within == "" {
		return hidden, s.Place.Name, err
	}
	up, base := split(change.Path("/" + inside(s, g.tops[s.Place.Within])))
	key := string(s.Place.Dir + up)
	if g.at == key {
		return g.dir, base, nil
	}
	fd, err := openBelow(hidden, string(up[1:]), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", &os.PathError{Op: "open", Path: change.Escape(key), Err: err}
	}
	g.leave()
	g.dir, g.at = fd, key
	return fd, base, nil
}

func (g *stager) leave() {
	if g.at != "" {
		unix.Close(g.dir)
	}
	g.at = ""
}

func (g *stager) stage(s *backends.Step) error {
	dir, name, err := g.where(*s)
	if err != nil {
		return err
	}
	if s.Place.Within != "" {
		up, err := stat(dir, "")
		if err != nil {
			return err
		}
		s.Place.Parent = up.identity()
	}
	xattrs, err := g.xattrs(*s)
	if err != nil {
		return err
	}
	n, err := create(dir, name, s.Change.New, xattrs, g.wanted, g.buf)
	if err != nil {
		return err
	}
	s.Place.Staged = n.identity()
	return nil
}

// xattrs returns what the new object has to keep of the old one, or to get from
// the directory it will be in.
func (g *stager) xattrs(s backends.Step) (map[string][]byte, error) {
	old, want := s.Change.Old, s.Change.New
	if old != nil && old.Type == want.Type {
		dir, base, err := g.parent(s.Change.Path)
		if err != nil {
			return nil, err
		}
		return source{dir, base, true}.xattrs()
	}
	at := s.Change.Path // whose parent is on the host: for a carried step its carrier's
	if s.Place.Within != "" {
		at = g.tops[s.Place.Within]
	}
	up, _ := split(at)
	if m, ok := g.labels[up]; ok {
		return m, nil
	}
	dir, _, err := g.parent(at)
	if err != nil {
		return nil, err
	}
	m, err := source{dir: dir}.xattrs()
	g.labels[up] = m
	return m, err
}

// create makes one object and returns what it is. A directory is left
// accessible to us and gets its metadata when it has been filled.
func create(dir int, name string, e *change.Entry, xattrs map[string][]byte, wanted backends.Wanted, buf []byte) (*node, error) {
	var err error
	switch e.Type {
	case change.Directory:
		if err = unix.Mkdirat(dir, name, 0o700); err != nil {
			err = os.NewSyscallError("mkdirat", err)
		}
	case change.Symlink:
		if err = unix.Symlinkat(string(e.Target), dir, name); err != nil {
			return nil, os.NewSyscallError("symlinkat", err)
		}
		err = attributeLink(dir, name, e, xattrs)
	case change.Regular:
		err = createFile(dir, name, e, xattrs, wanted, buf)
	default:
		err = fmt.Errorf("%w: file type %q", errors.ErrUnsupported, e.Type)
	}
	if err != nil {
		return nil, err
	}
	return stat(dir, name)
}

func createFile(dir int, name string, e *change.Entry, xattrs map[string][]byte, wanted backends.Wanted, buf []byte) error {
	src, err := wanted.Open(e.SHA256)
	if err != nil {
		return fmt.Errorf("open wanted content: %w", err)
	}
	defer src.Close()
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	if err := fill(fd, src, e, buf); err != nil {
		return err
	}
	return attribute(fd, e, xattrs)
}

// fill writes the content and proves on the way that it is what was planned.
func fill(fd int, src io.Reader, e *change.Entry, buf []byte) error {
	h := sha256.New()
	var size int64
	for {
		n, err := src.Read(buf)
		if n > 0 {
			h.Write(buf[:n])
			if err := writeAll(fd, buf[:n]); err != nil {
				return err
			}
			size += int64(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read wanted content: %w", err)
		}
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != e.SHA256 {
		return fmt.Errorf("wanted content is %d bytes of sha256 %s, planned was %s", size, sum, e.SHA256)
	}
	return nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("write", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

// finishDirs gives new directories their metadata, now that they are full.
func (g *stager) finishDirs(steps []backends.Step) error {
	for _, s := range slices.Backward(steps) {
		want := s.Change.New
		if want == nil || s.Place.Name == "" || want.Type != change.Directory {
			continue
		}
		if err := g.finishDir(s); err != nil {
			return fmt.Errorf("%s: %w", s.Change.Path, err)
		}
	}
	return nil
}

func (g *stager) finishDir(s backends.Step) error {
	dir, name, err := g.where(s)
	if err != nil {
		return err
	}
	xattrs, err := g.xattrs(s)
	if err != nil {
		return err
	}
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	return attribute(fd, s.Change.New, xattrs)
}

// foresee records the time that the swap will leave on each directory it
// touches: the wanted one where the plan has one, else now, so that whoever
// watches the directory sees it change.
func foresee(steps []backends.Step, now int64) {
	planned := map[change.Path]int64{}
	for _, s := range steps {
		if actOf(s.Change) == actInPlace {
			planned[s.Change.Path] = s.Change.New.MTime
		}
	}
	for i := range steps {
		s := &steps[i]
		if s.Place.DirBefore == 0 {
			continue
		}
		d := touched(*s)
		switch {
		case planned[d] != 0:
			s.Place.DirAfter = planned[d]
		case actOf(s.Change) == actInPlace:
			s.Place.DirAfter = s.Place.DirBefore
		default:
			s.Place.DirAfter = now
		}
	}
}

// touched is the directory whose modification time a step changes.
func touched(s backends.Step) change.Path {
	if actOf(s.Change) == actInPlace {
		return s.Change.Path
	}
	d, _ := split(s.Change.Path)
	return d
}
