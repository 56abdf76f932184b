package builder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/fsid"
	"github.com/netsandbox/netsandbox/backends/internal/regular"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// lower is the lower side of one layer, attached in scratch.
type lower struct {
	stat   unix.Stat_t // of its root, with the host's ids
	xattrs map[string][]byte
	id     string // see [fsid.Of]
	// unmapped says why the filesystem cannot be seen with shifted ids.
	unmapped error
}

// errSingle: the mount is of a file, or of anything that is no directory.
var errSingle = errors.New("a mount of a single file")

func (b *build) lower(p *piece, n string) (lower, error) {
	var l lower
	t, err := b.lowerTree(p.Point)
	if err != nil {
		return l, err
	}
	if err := unix.Fstat(t, &l.stat); err != nil {
		unix.Close(t)
		return l, fmt.Errorf("look at lower: %w", err)
	}
	if l.stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		unix.Close(t)
		return l, errSingle
	}
	if p.Deleted() { // it cannot be attached anywhere
		unix.Close(t)
		return l, errors.New("the directory that it shows is gone from its filesystem")
	}
	if b.Merged != nil {
		l.stat.Uid -= uint32(b.Mode.Shift)
		l.stat.Gid -= uint32(b.Mode.Shift)
	} else if b.Mode.UserNS() {
		if l.unmapped = mounts.Idmap(t, b.User); l.unmapped != nil {
			unix.Close(t)
			return l, nil
		}
	}
	if err := os.Mkdir("l"+n, 0o755); err != nil {
		unix.Close(t)
		return l, err
	}
	if err := b.attachScratch(t, "l"+n); err != nil {
		return l, err
	}
	if l.id, err = identity("l" + n); err != nil {
		return l, err
	}
	l.xattrs, err = readXattrs("l" + n)
	return l, err
}

// identity asks what filesystem a directory is on. One that cannot be opened,
// on a server that refuses root, is known by its device number alone.
func identity(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil //nolint:nilerr // see above
	}
	defer unix.Close(fd)
	return fsid.Of(fd)
}

// lowerTree clones the host's mount, or the merged mount of the live view from
// the namespace that made it. A view's upper cannot be a second lower beside
// the host's root: it lies below it, and the kernel refuses lowers that overlap.
func (b *build) lowerTree(point string) (int, error) {
	if b.Merged == nil {
		return mounts.Clone(unix.AT_FDCWD, point, false)
	}
	t, err := CloneIn(b.Merged, b.self, point, false)
	if err != nil {
		return -1, err
	}
	if err := unix.Fchdir(b.scratch); err != nil { // the way there and back ends at "/"
		unix.Close(t)
		return -1, fmt.Errorf("return to scratch directory: %w", err)
	}
	return t, nil
}

// upper attaches the directory that holds upper and work of one layer.
func (b *build) upper(p *piece, n string, l lower) error {
	if err := os.Mkdir("u"+n, 0o755); err != nil {
		return err
	}
	if b.Throwaway {
		return makeUpper("u"+n, l.stat, b.Mode.Shift, nil)
	}
	dir, err := b.keyDir(p.Mount, p.Key, l)
	if err != nil {
		return err
	}
	t, err := mounts.Clone(unix.AT_FDCWD, dir, false)
	if err != nil {
		return err
	}
	if b.Mode.UserNS() {
		if err := mounts.Idmap(t, b.User); err != nil {
			unix.Close(t)
			return fmt.Errorf("layer directory: %w", err)
		}
	}
	return b.attachScratch(t, "u"+n)
}

// makeUpper makes upper and work in dir. The root of the merged mount takes its
// owner and mode from the upper's.
func makeUpper(dir string, st unix.Stat_t, shift int, xattrs map[string][]byte) error {
	for _, d := range []struct {
		name     string
		mode     uint32
		uid, gid int
	}{
		{"work", 0o700, shift, shift},
		{"upper", st.Mode & 0o7777, int(st.Uid) + shift, int(st.Gid) + shift},
	} {
		p := filepath.Join(dir, d.name)
		if err := os.Mkdir(p, 0o700); err != nil {
			return err
		}
		if err := os.Chown(p, d.uid, d.gid); err != nil {
			return err
		}
		if err := unix.Chmod(p, d.mode); err != nil {
			return err
		}
	}
	up := filepath.Join(dir, "upper")
	for name, value := range xattrs {
		if err := unix.Lsetxattr(up, name, value, 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("set %s on upper: %w", name, err)
		}
	}
	return nil
}

// keyDir returns the layer's directory, made on first use.
func (b *build) keyDir(m mountplan.Mount, key string, l lower) (string, error) {
	dir := b.Dir.Path(envdir.Layers, key)
	want := fsid.Source{Point: m.Point, Dev: m.Dev, FS: m.FS, Root: m.Root, ID: l.id}
	raw, err := regular.Read(filepath.Join(dir, "source.json"))
	switch {
	case err == nil:
		var have fsid.Source
		if err := json.Unmarshal(raw, &have); err != nil {
			return "", fmt.Errorf("decode source of layer %s: %w", key, err)
		}
		if have == want {
			return dir, nil
		}
		if have.Same(want) {
			return dir, writeSource(dir, want)
		}
		// One that holds nothing is as good as none.
		if bare, err := empty(filepath.Join(dir, "upper")); err != nil || !bare {
			return "", errors.Join(err, fmt.Errorf("its layer was made over another filesystem (%s %s, now %s %s): netsandbox reset drops what it holds",
				have.FS, have.Dev, want.FS, want.Dev))
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read source of layer %s: %w", key, err)
	}
	// Without its source the directory is one that a crash left half made.
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("remove half-made layer: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make layer: %w", err)
	}
	if err := makeUpper(dir, l.stat, 0, l.xattrs); err != nil {
		return "", fmt.Errorf("make layer: %w", err)
	}
	return dir, writeSource(dir, want)
}

// empty reports whether a directory has no entries.
func empty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}

func writeSource(dir string, s fsid.Source) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "source.tmp")
	if err := os.WriteFile(tmp, raw, 0o600); err != nil {
		return fmt.Errorf("record source of layer: %w", err)
	}
	return os.Rename(tmp, filepath.Join(dir, "source.json"))
}

// readXattrs returns the extended attributes of a directory that belong to it
// and not to an overlay or to this boot's integrity state.
func readXattrs(path string) (map[string][]byte, error) {
	n, err := unix.Llistxattr(path, nil)
	if errors.Is(err, unix.ENOTSUP) || n == 0 {
		return nil, nil
	}
	buf := make([]byte, n+256)
	if err == nil {
		n, err = unix.Llistxattr(path, buf)
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes of %s: %w", path, err)
	}
	out := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00") {
		if name == "" || strings.HasPrefix(name, "trusted.") || name == "security.ima" || name == "security.evm" {
			continue
		}
		v := make([]byte, 64<<10)
		m, err := unix.Lgetxattr(path, name, v)
		if err != nil {
			return nil, fmt.Errorf("read attribute %s: %w", name, err)
		}
		out[name] = v[:m]
	}
	return out, nil
}
