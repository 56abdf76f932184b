package upper

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// evenly draws one of several. What rapid samples is mostly the first.
func evenly(t *rapid.T, label string, of []string) string {
	h := fnv.New32a()
	_ = binary.Write(h, binary.LittleEndian, rapid.Uint32().Draw(t, label))
	return of[h.Sum32()%uint32(len(of))]
}

// plant fills a directory with a random tree, three levels deep.
func plant(t *rapid.T, dir string, names []string, depth int) error {
	for _, name := range names {
		p := filepath.Join(dir, name)
		var err error
		switch evenly(t, p, []string{"nothing", "nothing", "file", "file", "directory", "directory", "directory", "symlink", "fifo", "pair", "sparse"}) {
		case "file":
			err = os.WriteFile(p, []byte(name), 0o644)
		case "pair":
			if err = os.WriteFile(p, []byte(name), 0o644); err == nil {
				err = os.Link(p, p+"2")
			}
		case "directory":
			if err = os.Mkdir(p, 0o755); err == nil && depth > 1 {
				err = plant(t, p, names, depth-1)
			}
		case "symlink":
			err = os.Symlink(names[0], p)
		case "fifo":
			err = unix.Mkfifo(p, 0o644)
		case "sparse":
			err = sparse(p, 1<<20)
		}
		if err != nil {
			return err
		}
		if rapid.IntRange(0, 3).Draw(t, p+" attributes") == 0 {
			setAttr(t, p)
		}
	}
	return nil
}

// randomEdit does one random thing to a tree. What cannot be done is not done.
func randomEdit(t *rapid.T, root string, names []string) {
	draw := func(label string) string {
		// Mostly something that is there: most random names are not.
		if there, err := readTree(root); err == nil && len(there) > 1 && evenly(t, label+" that is there", []string{"yes", "yes", "no"}) == "yes" {
			delete(there, ".")
			return filepath.Join(root, evenly(t, label, slices.Sorted(maps.Keys(there))))
		}
		depth := rapid.SampledFrom([]int{1, 2, 2, 3}).Draw(t, label+" depth")
		parts := make([]string, depth)
		for i := range parts {
			parts[i] = evenly(t, label, names)
		}
		return filepath.Join(root, filepath.Join(parts...))
	}
	p := draw("path")
	dir := func(p string) bool { st, err := os.Lstat(p); return err == nil && st.IsDir() }
	switch evenly(t, "op", []string{
		"write", "write", "write", "append", "mkdir", "mkdir", "mkdir", "remove", "remove tree", "rename",
		"replace", "chmod", "chown", "touch", "open", "symlink", "symlink", "symlink", "link", "link over", "link over", "fifo", "fifo", "fifo", "remake", "remake",
		"attribute", "attribute", "attribute", "attribute", "attribute", "no attribute", "sparse", "exchange",
	}) {
	case "write":
		if st, err := os.Lstat(p); err == nil && !st.Mode().IsRegular() {
			return // opening a FIFO would wait, a symlink might lead out
		}
		_ = os.WriteFile(p, []byte(rapid.SampledFrom([]string{"", "x", "y", "xy"}).Draw(t, "content")), 0o644)
	case "append", "open":
		if st, err := os.Lstat(p); err != nil || !st.Mode().IsRegular() {
			return
		}
		if f, err := os.OpenFile(p, os.O_RDWR|os.O_APPEND, 0); err == nil {
			if rapid.Bool().Draw(t, "write") {
				_, _ = f.WriteString("z")
			}
			f.Close()
		}
	case "mkdir":
		_ = os.Mkdir(p, 0o755)
	case "remove":
		_ = os.Remove(p)
	case "remove tree":
		// RemoveAll opens the parent, and would wait for a writer if it is a FIFO.
		if _, err := os.Lstat(p); err == nil {
			_ = os.RemoveAll(p)
		}
	case "remake":
		if dir(p) && os.RemoveAll(p) == nil {
			_ = os.Mkdir(p, 0o755)
		}
	case "rename":
		_ = os.Rename(p, draw("to"))
	case "replace":
		if st, err := os.Lstat(p); err == nil && st.Mode().IsRegular() && os.WriteFile(p+".tmp", []byte("r"), 0o644) == nil {
			_ = os.Rename(p+".tmp", p)
		}
	case "chmod":
		if st, err := os.Lstat(p); err == nil && st.Mode()&os.ModeSymlink == 0 {
			_ = unix.Chmod(p, rapid.SampledFrom([]uint32{0o644, 0o755, 0o700, 0o4711}).Draw(t, "mode"))
		}
	case "chown":
		_ = os.Lchown(p, rapid.SampledFrom([]int{0, 7}).Draw(t, "uid"), 0)
	case "touch":
		_ = unix.UtimesNanoAt(unix.AT_FDCWD, p, make([]unix.Timespec, 2), unix.AT_SYMLINK_NOFOLLOW)
	case "symlink":
		_ = os.Symlink(rapid.SampledFrom(names).Draw(t, "target"), p)
	case "link":
		_ = os.Link(p, draw("to"))
	case "link over":
		if to := draw("over"); os.Link(p, p+".tmp") == nil {
			_ = os.Rename(p+".tmp", to)
			_ = os.Remove(p + ".tmp") // names of one file are not renamed over each other
		}
	case "fifo":
		_ = unix.Mkfifo(p, 0o644)
	case "sparse":
		if st, err := os.Lstat(p); err != nil || st.Mode().IsRegular() {
			_ = sparse(p, rapid.SampledFrom([]int64{1, 4096, 1 << 20}).Draw(t, "size"))
		}
	case "attribute":
		setAttr(t, p)
	case "no attribute":
		if all, err := readAttrs(p); err == nil && len(all) > 0 {
			_ = unix.Lremovexattr(p, rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "name"))
		}
	case "exchange":
		_ = unix.Renameat2(unix.AT_FDCWD, p, unix.AT_FDCWD, draw("with"), unix.RENAME_EXCHANGE)
	}
}

// sparse writes a byte behind a hole.
func sparse(p string, hole int64) error {
	f, err := os.OpenFile(p, os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("s"), hole)
	return errors.Join(err, f.Close())
}

// setAttr sets a random attribute. What the type cannot have is not set.
func setAttr(t *rapid.T, p string) {
	value := evenly(t, "value", []string{"", "v", "w"})
	switch name := evenly(t, "attribute", []string{"user.k", "trusted.k", xattr.ACL, xattr.DefaultACL, xattr.Capability}); name {
	case xattr.ACL, xattr.DefaultACL:
		if st, err := os.Lstat(p); err == nil && st.Mode()&os.ModeSymlink == 0 {
			_ = unix.Lsetxattr(p, name, acl(uint16(len(value))+4), 0)
		}
	case xattr.Capability:
		if st, err := os.Lstat(p); err == nil && st.Mode().IsRegular() {
			_ = unix.Lsetxattr(p, name, capability(byte(len(value))), 0)
		}
	default:
		_ = unix.Lsetxattr(p, name, []byte(value), 0)
	}
}

// acl is an access control list as acl(5) and posix_acl_xattr.h have it: version
// 2, then tag, permissions and id of each entry. User 7 gets perm.
func acl(perm uint16) []byte {
	b := []byte{2, 0, 0, 0}
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 6, ^uint32(0)}, {0x02, perm, 7}, {0x04, 4, ^uint32(0)}, {0x10, 7, ^uint32(0)}, {0x20, 4, ^uint32(0)}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// capability is a version 2 file capability, capabilities(7).
func capability(permitted byte) []byte {
	b := make([]byte, 20)
	b[0], b[3], b[4] = 1, 2, 1+permitted
	return b
}
