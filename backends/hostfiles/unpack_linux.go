package hostfiles

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// unpack makes every missing original anew, unfinished.
func (r *restorer) unpack(ctx context.Context, in *tar.Reader) error {
	wanted, err := r.wanted()
	if err != nil {
		return err
	}
	all := map[string]backends.Step{}
	for _, s := range r.steps {
		all[archived(s.Change.Path)] = s
	}
	var dirs []garment
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
		s, ok := all[name]
		if !ok {
			continue
		}
		made, err := r.unpackOne(s, wanted, hdr, in)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Change.Path, err)
		}
		for _, s := range made {
			delete(wanted, archived(s.Change.Path))
			if s.Change.Old.Type == change.Directory {
				dirs = append(dirs, garment{s, hdr})
			}
		}
	}
	for _, d := range slices.Backward(dirs) {
		if err := r.dress(d); err != nil {
			return fmt.Errorf("%s: %w", d.step.Change.Path, err)
		}
	}
	return nil
}

// garment is the metadata that a directory gets when it is full.
type garment struct {
	step backends.Step
	hdr  *tar.Header
}

// wanted returns the steps whose originals are missing, by their names in the
// archive, and makes room for them.
func (r *restorer) wanted() (map[string]backends.Step, error) {
	wanted := map[string]backends.Step{}
	for _, s := range r.steps {
		if !r.lost(s) || s.Change.Old == nil {
			continue
		}
		if s.Place.Within == "" {
			if err := r.fresh(s); err != nil {
				return nil, err
			}
		}
		wanted[archived(s.Change.Path)] = s
		if id, ok := group(s); ok {
			r.groups[id] = append(r.groups[id], s)
		}
	}
	return wanted, nil
}

// unpackOne makes what one entry of the archive is for, and returns which steps
// that were. The content of a file with several names is there once, under the
// first of them, which need not be missing itself.
func (r *restorer) unpackOne(s backends.Step, wanted map[string]backends.Step, hdr *tar.Header, in io.Reader) ([]backends.Step, error) {
	id, several := group(s)
	if !several {
		if _, ok := wanted[archived(s.Change.Path)]; !ok {
			return nil, nil
		}
		return []backends.Step{s}, r.remake(s, hdr, in)
	}
	names := r.groups[id]
	if len(names) == 0 || hdr.Typeflag == tar.TypeLink {
		return nil, nil
	}
	delete(r.groups, id)
	found, err := r.rejoin(names[0])
	if err == nil && !found {
		err = r.remake(names[0], hdr, in)
	}
	if err != nil {
		return nil, err
	}
	for _, s := range names[1:] {
		if err := r.link(names[0], s); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// in calls f with the directory and the name under which s is made anew. The
// walk to a carried one's directory passes only what was just made.
func (r *restorer) in(s backends.Step, f func(dir int, base string) error) error {
	hidden, at, err := r.where(s)
	if err != nil {
		return err
	}
	return beneath(hidden, at, f)
}

// beneath calls f with the directory of a relative path and the last element.
func beneath(hidden int, at string, f func(dir int, base string) error) error {
	up, name := split(change.Path("/" + at))
	if up == "/" {
		return f(hidden, at)
	}
	dir, err := openBelow(hidden, string(up[1:]), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(dir)
	return f(dir, name)
}

// remake makes one original from the archive.
func (r *restorer) remake(s backends.Step, hdr *tar.Header, content io.Reader) error {
	data, err := dataOf(hdr)
	if err != nil {
		return err
	}
	e, more := remembered(s, hdr)
	return r.in(s, func(dir int, base string) error {
		_, err := create(dir, base, e, material{content, data, more}, r.buf)
		return err
	})
}

// link makes s another name of an original that was just made.
func (r *restorer) link(from, s backends.Step) error {
	return r.in(from, func(fromDir int, fromName string) error {
		return r.in(s, func(dir int, base string) error {
			return os.NewSyscallError("linkat", unix.Linkat(fromDir, fromName, dir, base, 0))
		})
	})
}

// rejoin makes s a name of the inode that it was a name of, if that is still
// there under another one and nobody has changed it. What was written to it since
// stays under that other name. An earlier try that died may have made the file
// anew and given it some of its names: then it is that one.
func (r *restorer) rejoin(s backends.Step) (bool, error) {
	hidden, err := r.place(s.Place.Dir)
	if err != nil {
		return false, err
	}
	fd, _, err := r.survivor(s, hidden)
	if err != nil {
		return false, err
	}
	if fd >= 0 {
		defer unix.Close(fd)
		joined, err := r.join(s, fd, "", unix.AT_EMPTY_PATH)
		if joined || err != nil {
			return joined, err
		}
	}
	id, _ := group(s)
	for _, other := range r.steps {
		if o, ok := group(other); !ok || o != id || r.lost(other) {
			continue
		}
		joined := false
		hidden, err := r.place(other.Place.Dir)
		if err == nil {
			err = beneath(hidden, slotOf(other, r.tops), func(dir int, base string) error {
				joined, err = r.join(s, dir, base, 0)
				return err
			})
		}
		if joined || err != nil && !absent(err) {
			return joined, err
		}
	}
	return false, nil
}

// lost reports a step whose original is to be made anew.
func (r *restorer) lost(s backends.Step) bool {
	carrier := s.Place.Within
	if carrier == "" {
		carrier = s.Place.Name
	}
	_, miss := r.missing[carrier]
	return miss
}

// join links s to a file, and lets go of it again if it is not the original to
// the last byte.
func (r *restorer) join(s backends.Step, fromDir int, fromName string, flags int) (joined bool, err error) {
	err = r.in(s, func(dir int, base string) error {
		if err := unix.Linkat(fromDir, fromName, dir, base, flags); err != nil {
			return nil // its last name went meanwhile, or it may have no more
		}
		now, err := r.entry(dir, base, nil)
		if joined = err == nil && now.Same(s.Change.Old) && now.MTime == s.Change.Old.MTime; joined {
			return nil
		}
		if errors.Is(err, errBusy) {
			err = nil
		}
		return errors.Join(err, os.NewSyscallError("unlinkat", unix.Unlinkat(dir, base, 0)))
	})
	return joined, err
}

func (r *restorer) dress(d garment) error {
	hidden, at, err := r.where(d.step)
	if err != nil {
		return err
	}
	fd, err := openBelow(hidden, at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	e, more := remembered(d.step, d.hdr)
	return dress(fd, e, more)
}

// remembered returns the original's entry, and what no plan carries, with the
// attributes of the archive: it has all of them.
func remembered(s backends.Step, hdr *tar.Header) (*change.Entry, map[string][]byte) {
	all := map[string][]byte{}
	for k, v := range hdr.PAXRecords {
		if name, ok := strings.CutPrefix(k, xattrKey); ok {
			all[decodeKey.Replace(name)] = []byte(v)
		}
	}
	e := *s.Change.Old
	e.Xattrs = xattr.Filter(all)
	for k := range e.Xattrs {
		delete(all, k)
	}
	return &e, all
}
