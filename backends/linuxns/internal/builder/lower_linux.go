package builder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// lower is the lower side of one layer, attached in scratch.
type lower struct {
	stat   unix.Stat_t // of its root, with the host's ids
	xattrs map[string][]byte
	// unmapped says why the filesystem cannot be seen with shifted ids.
	unmapped error
}

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
	l.xattrs, err = readXattrs("l" + n)
	return l, err
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
func (b *build) upper(p *piece, n string, st unix.Stat_t, xattrs map[string][]byte) error {
	if err := os.Mkdir("u"+n, 0o755); err != nil {
		return err
	}
	if b.Throwaway {
		return makeUpper("u"+n, st, b.Mode.Shift, nil)
	}
	dir, err := b.keyDir(p.Mount, p.Key, st, xattrs)
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

// source is layers/KEY/source.json: over what a layer was made.
type source struct {
	Point string `json:"point"`
	Dev   string `json:"dev"`
	FS    string `json:"fs"`
	Root  string `json:"root"`
}

// same reports whether s and o are the same part of the same filesystem.
// Anonymous device numbers (major 0: btrfs, tmpfs) are another at every mount.
func (s source) same(o source) bool {
	anonymous := strings.HasPrefix(s.Dev, "0:") && strings.HasPrefix(o.Dev, "0:")
	return s.Point == o.Point && s.FS == o.FS && s.Root == o.Root && (s.Dev == o.Dev || anonymous)
}

// keyDir returns the layer's directory, made on first use. A layer is only ever
// laid over the filesystem that it was made over: its whiteouts and copies mean
// nothing on another one.
func (b *build) keyDir(m mountplan.Mount, key string, st unix.Stat_t, xattrs map[string][]byte) (string, error) {
	dir := b.Dir.Path(envdir.Layers, key)
	want := source{m.Point, m.Dev, m.FS, m.Root}
	raw, err := os.ReadFile(filepath.Join(dir, "source.json"))
	if err == nil {
		var have source
		if err := json.Unmarshal(raw, &have); err != nil {
			return "", fmt.Errorf("decode source of layer %s: %w", key, err)
		}
		if !have.same(want) {
			return "", fmt.Errorf("its layer was made over another filesystem (%s %s %s, now %s %s %s); reset it",
				have.FS, have.Dev, have.Root, want.FS, want.Dev, want.Root)
		}
		if have == want {
			return dir, nil
		}
		return dir, writeSource(dir, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read source of layer %s: %w", key, err)
	}
	// Without its source the directory is one that a crash left half made.
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("remove half-made layer: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make layer: %w", err)
	}
	if err := makeUpper(dir, st, 0, xattrs); err != nil {
		return "", fmt.Errorf("make layer: %w", err)
	}
	return dir, writeSource(dir, want)
}

func writeSource(dir string, s source) error {
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
