package upper

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// fact is what a reader sees of one path.
type fact struct {
	text string // type, mode, owner, content, attributes
	ino  uint64 // of a file or fifo: which names are one
}

// tree is a directory as a reader sees it, by relative path.
type tree map[string]fact

// readTree lists everything below a directory, following nothing.
func readTree(root string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		t[rel], err = look(p)
		return err
	})
	return t, err
}

func look(p string) (fact, error) {
	var st unix.Stat_t
	if err := unix.Lstat(p, &st); err != nil {
		return fact{}, err
	}
	f := fact{text: fmt.Sprintf("%04o %d:%d", st.Mode&0o7777, st.Uid, st.Gid)}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		b, err := os.ReadFile(p)
		if err != nil {
			return f, err
		}
		f.text, f.ino = "file "+f.text+" "+contentText(b), st.Ino
	case unix.S_IFDIR:
		f.text = "directory " + f.text
	case unix.S_IFLNK:
		to, err := os.Readlink(p)
		if err != nil {
			return f, err
		}
		f.text = "symlink " + f.text + " " + to
	default:
		f.text, f.ino = "fifo "+f.text, st.Ino
	}
	attrs, err := readAttrs(p)
	f.text += attrText(attrs)
	return f, err
}

// readAttrs asks the kernel itself: it is the oracle of the reader under test.
func readAttrs(p string) (map[string][]byte, error) {
	list := make([]byte, 4096)
	n, err := unix.Llistxattr(p, list)
	if err != nil {
		return nil, err
	}
	attrs := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		v := make([]byte, 4096)
		n, err := unix.Lgetxattr(p, name, v)
		if err != nil {
			return nil, err
		}
		attrs[name] = v[:n]
	}
	return attrs, nil
}

func attrText(attrs map[string][]byte) string {
	var s string
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		s += fmt.Sprintf(" %s=%x", name, attrs[name])
	}
	return s
}

// contentText keeps a failure readable when a file has a hole of a megabyte.
func contentText(b []byte) string {
	if len(b) < 64 {
		return string(b)
	}
	return fmt.Sprintf("%d bytes %x", len(b), sha256.Sum256(b))
}

func kindOf(facts string) string {
	kind, _, _ := strings.Cut(facts, " ")
	return kind
}

// model says what the difference between two trees must be called: the plain
// comparison that needs no overlay.
func model(host, view tree) string {
	var lines []string
	all := map[string]bool{}
	for p := range host {
		all[p] = true
	}
	for p := range view {
		all[p] = true
	}
	links := linked(host, view)
	for p := range all {
		old, had := host[p]
		want, has := view[p]
		first := links[p]
		var op change.Op
		switch {
		case old.text == want.text && had == has && first == "":
			continue
		case !had:
			op = change.Added
		case !has:
			op = change.Deleted
		case kindOf(old.text) != kindOf(want.text):
			op = change.Replaced
		default:
			op = change.Modified
		}
		switch {
		case first != "" && kindOf(want.text) == "fifo":
			lines = append(lines, "blocked fifo "+p)
		case first != "" && first != p:
			want.text += " = " + first
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", op, p, want.text))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// linked returns, for every name of a file that has several in the view and is
// not the same file of the host, the first name.
func linked(host, view tree) map[string]string {
	names := map[uint64][]string{}
	for p, f := range view {
		if f.ino != 0 {
			names[f.ino] = append(names[f.ino], p)
		}
	}
	firsts := map[string]string{}
	for _, group := range names {
		slices.Sort(group)
		as := func(p string) bool {
			return host[p].text == view[p].text && host[p].ino == host[group[0]].ino
		}
		if len(group) == 1 || !slices.ContainsFunc(group, func(p string) bool { return !as(p) }) {
			continue
		}
		for _, p := range group {
			firsts[p] = group[0]
		}
	}
	return firsts
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
			facts += attrText(e.Xattrs)
			if e.Link != "" {
				facts += " = " + rel(string(e.Link))
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
	return contentText(b), err
}
