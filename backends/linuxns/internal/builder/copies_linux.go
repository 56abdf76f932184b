package builder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// look is what tells without reading it that a file is as it was.
type look struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	Size  int64  `json:"size"`
	Mode  uint32 `json:"mode"`
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	MTime int64  `json:"mtime"`
	CTime int64  `json:"ctime"`
}

func lookAt(st unix.Stat_t) look {
	return look{st.Dev, st.Ino, st.Size, st.Mode, st.Uid, st.Gid, st.Mtim.Nano(), st.Ctim.Nano()}
}

// copied is files/rKEY: what the private copy files/fKEY was made of, and is.
type copied struct {
	Point change.Path `json:"point"`
	Host  look        `json:"host"`
	Own   look        `json:"own"`
	Sum   string      `json:"sum"`
}

// changed reports whether the copy at path differs from what it was made as. Its
// bytes are read only when something else says that they may be others.
func (c copied) changed(path string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, err
	}
	now := lookAt(st)
	if now == c.Own {
		return false, nil
	}
	if now.Mode != c.Own.Mode || now.UID != c.Own.UID || now.GID != c.Own.GID || now.Size != c.Own.Size {
		return true, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	s, err := sumAll(f)
	return s != c.Sum, err
}

// copyFile gives a single-file mount of the host a private copy, which lives in
// the environment's directory and is bound. The host's file cannot be replaced
// under a mount, so what changes in the copy has no plan; see [Copies].
func (b *build) copyFile(p *piece) (int, error) {
	p.Reason = "a mount of a single file: a change to it blocks a plan"
	if b.Merged != nil { // the view's own copy, which a canary may not change
		p.attrs |= unix.MOUNT_ATTR_RDONLY
		return CloneIn(b.Merged, b.self, p.Point, false)
	}
	src, err := openPlain(p.Point)
	if err != nil {
		return -1, err
	}
	defer src.Close()
	path := "f" + mountplan.Key(p.Point) // in scratch
	if !b.Throwaway {
		path = b.Dir.Path(envdir.Files, path)
	}
	if err := refresh(path, p.Point, src); err != nil {
		return -1, fmt.Errorf("copy file: %w", err)
	}
	t, err := mounts.Clone(unix.AT_FDCWD, path, false)
	if err != nil {
		return -1, err
	}
	if b.Mode.UserNS() && !b.Throwaway {
		if err := mounts.Idmap(t, b.User); err != nil {
			unix.Close(t)
			return -1, err
		}
	}
	return t, nil
}

// openPlain opens a regular file of the host, and nothing else: a device or a
// FIFO would do something when it is opened.
func openPlain(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("a mount of something that is no regular file")
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// refresh makes the copy, or makes it again when the host's file has changed and
// the copy has not.
func refresh(path, point string, src *os.File) error {
	var host unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &host); err != nil {
		return err
	}
	c, err := readCopied(path)
	if err == nil {
		if c.Host == lookAt(host) {
			_, err = os.Lstat(path)
		} else if differs, cerr := c.changed(path); cerr == nil && !differs {
			err = fs.ErrNotExist
		} else {
			err = cerr
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return copyTo(path, point, src, host)
}

// sibling names another file of the copy at path. The letter comes first: what
// follows it can be any name.
func sibling(path, letter string) string {
	return filepath.Join(filepath.Dir(path), letter+filepath.Base(path)[1:])
}

func readCopied(path string) (copied, error) {
	var c copied
	b, err := os.ReadFile(sibling(path, "r"))
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("decode %s: %w", sibling(path, "r"), err)
	}
	return c, nil
}

// copyTo writes the copy, then the record of it. A copy without a record is one
// that a crash left, before anything could have used it.
func copyTo(path, point string, in *os.File, st unix.Stat_t) error {
	if err := os.Remove(sibling(path, "r")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(sibling(path, "t"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, io.NewSectionReader(in, 0, 1<<62)); err != nil {
		return err
	}
	if err := out.Chown(int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := unix.Fchmod(int(out.Fd()), st.Mode&0o7777); err != nil {
		return err
	}
	if err := os.Rename(sibling(path, "t"), path); err != nil {
		return err
	}
	c := copied{Point: change.Path(point), Host: lookAt(st)}
	if c.Sum, err = sumAll(out); err != nil {
		return err
	}
	var own unix.Stat_t
	if err := unix.Fstat(int(out.Fd()), &own); err != nil {
		return err
	}
	c.Own = lookAt(own)
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(sibling(path, "s"), b, 0o600); err != nil {
		return err
	}
	return os.Rename(sibling(path, "s"), sibling(path, "r"))
}

// eachCopy calls f with every private copy of an environment.
func eachCopy(dir envdir.Dir, f func(path string, c copied) error) error {
	records, err := filepath.Glob(dir.Path(envdir.Files, "r*"))
	if err != nil {
		return err
	}
	slices.Sort(records)
	for _, r := range records {
		path := sibling(r, "f")
		c, err := readCopied(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f(path, c)
		}
		if err != nil {
			return fmt.Errorf("look at private copy of %s: %w", c.Point, err)
		}
	}
	return nil
}

// Copies returns the mount points of the private copies that were changed in the
// view.
func Copies(dir envdir.Dir) ([]change.Path, error) {
	var out []change.Path
	err := eachCopy(dir, func(path string, c copied) error {
		differs, err := c.changed(path)
		if differs {
			out = append(out, c.Point)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return out, err
}

// DropCopies removes the private copies at and below the paths; the next build
// takes new ones. Nothing has them mounted.
func DropCopies(dir envdir.Dir, paths ...change.Path) error {
	return eachCopy(dir, func(path string, c copied) error {
		at := func(p change.Path) bool {
			return p == "/" || c.Point == p || strings.HasPrefix(string(c.Point), string(p)+"/")
		}
		if !slices.ContainsFunc(paths, at) {
			return nil
		}
		return errors.Join(os.Remove(sibling(path, "r")), os.Remove(path))
	})
}
