package upper

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/netsandbox/netsandbox/backends/change"
)

// tree is a directory as a reader sees it: one line of facts by relative path.
type tree map[string]string

// readTree lists everything below a directory, following nothing.
func readTree(root string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		facts := fmt.Sprintf("%04o %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			facts = "file " + facts + " " + string(b)
		case unix.S_IFDIR:
			facts = "directory " + facts
		case unix.S_IFLNK:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			facts = "symlink " + facts + " " + to
		default:
			facts = "fifo " + facts
		}
		rel, err := filepath.Rel(root, p)
		t[rel] = facts
		return err
	})
	return t, err
}

func kindOf(facts string) string {
	kind, _, _ := strings.Cut(facts, " ")
	return kind
}

// model says what the difference between two trees must be called: the plain
// comparison that needs no overlay.
func (l *lab) model(host, view tree) string {
	var lines []string
	all := map[string]bool{}
	for p := range host {
		all[p] = true
	}
	for p := range view {
		all[p] = true
	}
	for p := range all {
		old, had := host[p]
		want, has := view[p]
		var op change.Op
		switch {
		case old == want && had == has:
			continue
		case kindOf(old) == "fifo" || kindOf(want) == "fifo":
			lines = append(lines, "blocked fifo "+p)
			continue
		case !had:
			op = change.Added
		case !has:
			op = change.Deleted
		case kindOf(old) != kindOf(want):
			op = change.Replaced
		default:
			op = change.Modified
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", op, p, want))
		var st unix.Stat_t
		if kindOf(want) == "file" && unix.Lstat(filepath.Join(l.merged, p), &st) == nil && st.Nlink > 1 {
			lines = append(lines, "blocked hardlink "+p)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// found renders what Diff says in the same words, with the facts taken from the
// entries and the content from Open.
func (l *lab) found() (string, error) {
	d, err := Diff(l.env, DiffOptions{Env: "e", Base: l.base, TView: l.tview})
	if err != nil {
		return "", err
	}
	rel := func(p string) string {
		if p == l.host {
			return "."
		}
		return strings.TrimPrefix(p, l.host+"/")
	}
	var lines []string
	for _, c := range d.Changes {
		facts := ""
		if e := c.New; e != nil {
			facts = fmt.Sprintf("%s %04o %d:%d", e.Type, e.Mode, e.UID, e.GID)
			switch e.Type {
			case change.Symlink:
				facts += " " + string(e.Target)
			case change.Regular:
				content, err := l.content(c.Path)
				if err != nil {
					return "", err
				}
				facts += " " + content
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", c.Op, rel(string(c.Path)), facts))
	}
	for _, b := range d.Blockers {
		lines = append(lines, fmt.Sprintf("blocked %s %s", b.What, rel(b.Subject)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

func (l *lab) content(p change.Path) (string, error) {
	f, err := Open(l.env, p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return string(b), err
}

// plant fills a directory with a random tree, three levels deep.
func plant(t *rapid.T, dir string, names []string, depth int) error {
	for _, name := range names {
		p := filepath.Join(dir, name)
		var err error
		switch rapid.SampledFrom([]string{"nothing", "file", "file", "directory", "directory", "directory", "symlink", "fifo", "pair"}).Draw(t, p) {
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
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// randomEdit does one random thing to a tree. What cannot be done is not done.
func randomEdit(t *rapid.T, root string, names []string) {
	draw := func(label string) string {
		// Mostly something that is there: most random names are not.
		if there, err := readTree(root); err == nil && len(there) > 1 && rapid.SampledFrom([]bool{true, true, false}).Draw(t, label+" that is there") {
			delete(there, ".")
			return filepath.Join(root, rapid.SampledFrom(slices.Sorted(maps.Keys(there))).Draw(t, label))
		}
		depth := rapid.SampledFrom([]int{1, 2, 2, 3}).Draw(t, label+" depth")
		parts := make([]string, depth)
		for i := range parts {
			parts[i] = rapid.SampledFrom(names).Draw(t, label)
		}
		return filepath.Join(root, filepath.Join(parts...))
	}
	p := draw("path")
	dir := func(p string) bool { st, err := os.Lstat(p); return err == nil && st.IsDir() }
	switch rapid.SampledFrom([]string{
		"write", "write", "write", "append", "mkdir", "mkdir", "mkdir", "remove", "remove tree", "rename",
		"replace", "chmod", "chown", "touch", "open", "symlink", "link", "fifo", "remake", "remake",
	}).Draw(t, "op") {
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
	case "fifo":
		_ = unix.Mkfifo(p, 0o644)
	}
}
