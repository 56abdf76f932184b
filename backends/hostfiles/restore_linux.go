package hostfiles

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Restore makes originals that are no longer in their slots anew from the
// archive in dir, and returns the steps with their new identity. Where nothing is
// missing it changes nothing. This is the one part of an undo that needs space.
func (h *Host) Restore(ctx context.Context, steps []backends.Step, dir string) ([]backends.Step, error) {
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	defer t.close()
	steps = slices.Clone(steps)
	r := &restorer{tree: t, steps: steps, missing: map[string]int{}, tops: tops(steps)}
	if err := r.search(); err != nil || len(r.missing) == 0 {
		return steps, err
	}
	f, err := os.Open(filepath.Join(dir, archiveName))
	if err != nil {
		return steps, err
	}
	defer f.Close()
	if err := r.unpack(ctx, tar.NewReader(f)); err != nil {
		return steps, fmt.Errorf("unpack %s: %w", f.Name(), err)
	}
	return steps, r.settle()
}

// restorer rebuilds displaced originals in their hidden directories.
type restorer struct {
	*tree
	steps   []backends.Step
	missing map[string]int // index of each step that lost its original, by Name
	tops    map[string]change.Path
}

func (r *restorer) search() error {
	u := &undoer{tree: r.tree, steps: r.steps}
	for i, s := range r.steps {
		miss, err := u.isMissing(s)
		if err != nil {
			return err
		}
		if miss {
			r.missing[s.Place.Name] = i
		}
	}
	return nil
}

// unfinished is a slot's name until everything in it is durable: a slot holds a
// whole original or nothing.
func unfinished(name string) string { return "restoring-" + name }

func (r *restorer) unpack(ctx context.Context, in *tar.Reader) error {
	wanted := map[string]backends.Step{}
	for _, s := range r.steps {
		carrier := s.Place.Within
		if carrier == "" {
			carrier = s.Place.Name
		}
		i, miss := r.missing[carrier]
		if !miss || s.Change.Old == nil {
			continue
		}
		if s.Place.Within == "" {
			if err := r.fresh(r.steps[i]); err != nil {
				return err
			}
		}
		wanted[archived(s.Change.Path)] = s
	}
	type dirTime struct {
		step   backends.Step
		xattrs map[string][]byte
	}
	var dirs []dirTime
	for len(wanted) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		hdr, err := in.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%d originals are not in it: %w", len(wanted), fs.ErrNotExist)
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(hdr.Name, "/")
		s, ok := wanted[name]
		if !ok {
			continue
		}
		delete(wanted, name)
		xattrs := xattrsOf(hdr)
		if err := r.remake(s, xattrs, in); err != nil {
			return fmt.Errorf("%s: %w", s.Change.Path, err)
		}
		if s.Change.Old.Type == change.Directory {
			dirs = append(dirs, dirTime{s, xattrs})
		}
	}
	for _, d := range slices.Backward(dirs) {
		if err := r.dress(d.step, d.xattrs); err != nil {
			return fmt.Errorf("%s: %w", d.step.Change.Path, err)
		}
	}
	return nil
}

// fresh makes room for one original.
func (r *restorer) fresh(s backends.Step) error {
	if err := r.ensurePlace(s.Place.Dir); err != nil {
		return err
	}
	hidden, err := r.place(s.Place.Dir)
	if err != nil {
		return err
	}
	return removeAll(hidden, unfinished(s.Place.Name))
}

func (r *restorer) where(s backends.Step) (int, string, error) {
	hidden, err := r.place(s.Place.Dir)
	if s.Place.Within == "" {
		return hidden, unfinished(s.Place.Name), err
	}
	return hidden, unfinished(inside(s, r.tops[s.Place.Within])), err
}

// remake makes one original. The walk to a carried one's directory passes only
// what was just made.
func (r *restorer) remake(s backends.Step, xattrs map[string][]byte, content io.Reader) error {
	hidden, at, err := r.where(s)
	if err != nil {
		return err
	}
	dir, base := hidden, at
	if up, name := split(change.Path("/" + at)); up != "/" {
		if dir, err = openBelow(hidden, string(up[1:]), unix.O_PATH|unix.O_DIRECTORY); err != nil {
			return os.NewSyscallError("openat2", err)
		}
		defer unix.Close(dir)
		base = name
	}
	_, err = create(dir, base, s.Change.Old, xattrs, content, r.buf)
	return err
}

func (r *restorer) dress(s backends.Step, xattrs map[string][]byte) error {
	hidden, at, err := r.where(s)
	if err != nil {
		return err
	}
	fd, err := openBelow(hidden, at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	return attribute(fd, s.Change.Old, xattrs)
}

// settle makes the originals durable and gives them their names.
func (r *restorer) settle() error {
	if err := r.flushPlaces(r.steps); err != nil {
		return err
	}
	for name, i := range r.missing {
		s := &r.steps[i]
		hidden, err := r.place(s.Place.Dir)
		if err != nil {
			return err
		}
		err = durable("restore "+name, func() error {
			return renameat2(hidden, unfinished(name), hidden, name, unix.RENAME_NOREPLACE)
		})
		if err != nil {
			return err
		}
		n, err := stat(hidden, name)
		if err != nil {
			return err
		}
		s.Place.Original = n.identity()
	}
	return nil
}

func xattrsOf(hdr *tar.Header) map[string][]byte {
	m := map[string][]byte{}
	for k, v := range hdr.PAXRecords {
		if name, ok := strings.CutPrefix(k, xattrKey); ok {
			m[name] = []byte(v)
		}
	}
	return m
}
