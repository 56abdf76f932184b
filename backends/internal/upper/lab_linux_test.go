package upper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// lab is a host directory with an overlay over it, as a view would mount it.
type lab struct {
	t      testing.TB
	env    string // the environment's directory
	host   string // a mount of the private namespace that plays the host
	merged string // the view
	tview  int64
	base   string // for diff
	seen   map[string]int
}

// newLab makes the host from a script run in it, then mounts the view.
func newLab(t testing.TB, script string) *lab {
	t.Helper()
	nstest.NewMount(t, nstest.Overlay)
	dir := t.TempDir()
	l := &lab{t: t, env: filepath.Join(dir, "env"), host: filepath.Join(dir, "host"), merged: filepath.Join(dir, "merged"), seen: map[string]int{}}
	l.base = l.host
	for _, d := range []string{l.host, l.merged, l.env + "/layers/root/upper", l.env + "/layers/root/work"} {
		must(t, os.MkdirAll(d, 0o755))
	}
	must(t, unix.Mount(l.host, l.host, "", unix.MS_BIND, ""))
	src, err := json.Marshal(Source{Point: l.host})
	must(t, err)
	must(t, os.WriteFile(l.env+"/layers/root/source.json", src, 0o600))
	l.onHost(script)
	l.mount()
	return l
}

// mount mounts the view and dates it, as the product does: by the change time of
// a stamp file, less 2 ms. It waits until that is later than now, so that what
// a test did on the host before counts as before.
func (l *lab) mount() {
	l.t.Helper()
	first := l.stamp()
	for deadline := time.Now().Add(5 * time.Second); ; {
		l.tview = l.stamp() - 2e6
		if l.tview > first {
			break
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the clock of the filesystem stands still")
		}
	}
	overlay(l.t, l.host, l.env+"/layers/root", l.merged)
}

// overlay mounts with the view's own options. fsconfig(2) takes paths as they
// are; a comma in one would end an option of mount(2).
func overlay(t testing.TB, lower, layer, merged string) {
	t.Helper()
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	must(t, err)
	defer unix.Close(fs)
	for _, o := range [][2]string{
		{"lowerdir", lower},
		{"upperdir", layer + "/upper"},
		{"workdir", layer + "/work"},
		{"redirect_dir", "nofollow"},
		{"metacopy", "off"},
		{"index", "off"},
		{"xino", "auto"},
	} {
		must(t, unix.FsconfigSetString(fs, o[0], o[1]))
	}
	must(t, unix.FsconfigCreate(fs))
	m, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV)
	must(t, err)
	defer unix.Close(m)
	must(t, unix.MoveMount(m, "", unix.AT_FDCWD, merged, unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// addLayer makes a layer over a mount of the host and mounts it in the view.
func (l *lab) addLayer(key, point string) {
	l.t.Helper()
	dir := l.env + "/layers/" + key
	for _, d := range []string{dir + "/upper", dir + "/work"} {
		must(l.t, os.MkdirAll(d, 0o755))
	}
	var st unix.Stat_t
	must(l.t, unix.Stat(point, &st))
	must(l.t, os.Chmod(dir+"/upper", os.FileMode(st.Mode&0o777)))
	src, err := json.Marshal(Source{
		Point: point, Dev: fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), FS: "tmpfs", Root: "/",
	})
	must(l.t, err)
	must(l.t, os.WriteFile(dir+"/source.json", src, 0o600))
	overlay(l.t, point, dir, l.merged+strings.TrimPrefix(point, l.host))
}

func (l *lab) stamp() int64 {
	l.t.Helper()
	name := filepath.Join(l.env, "stamp")
	must(l.t, os.WriteFile(name, nil, 0o600))
	var st unix.Stat_t
	must(l.t, unix.Stat(name, &st))
	return st.Ctim.Nano()
}

func (l *lab) unmount() {
	l.t.Helper()
	must(l.t, unix.Unmount(l.merged, 0))
}

func (l *lab) onHost(script string) { l.t.Helper(); l.run(l.host, script) }
func (l *lab) inView(script string) { l.t.Helper(); l.run(l.merged, script) }

func (l *lab) diff() backends.Difference {
	l.t.Helper()
	d, err := Diff(l.env, DiffOptions{Env: "e", Base: l.base, TView: l.tview})
	must(l.t, err)
	return d
}

// text renders a difference, one line each, with paths relative to the host.
func (l *lab) text(d backends.Difference) string {
	var b strings.Builder
	rel := func(p change.Path) string {
		if string(p) == l.host {
			return "."
		}
		return strings.TrimPrefix(p.String(), l.host+"/")
	}
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "%s %s%s\n", c.Op, rel(c.Path), l.became(c))
	}
	for _, c := range d.Ephemeral {
		fmt.Fprintf(&b, "ephemeral %s %s\n", c.Op, rel(c.Path))
	}
	for _, k := range d.Blockers {
		fmt.Fprintf(&b, "blocked %s %s\n", k.What, strings.TrimPrefix(k.Subject, l.host+"/"))
	}
	return b.String()
}

// became tells what a change leads to in a word or two.
func (l *lab) became(c change.Change) string {
	if c.New == nil {
		return ""
	}
	var s string
	switch {
	case c.Op == change.Modified && c.Old.SHA256 == c.New.SHA256 && c.New.Type != change.Symlink:
		s = fmt.Sprintf(" mode %04o owner %d:%d", c.New.Mode, c.New.UID, c.New.GID)
	case c.New.Type == change.Symlink:
		s = " -> " + c.New.Target.String()
	case c.New.Type == change.Directory:
		s = "/"
	case c.New.Type == change.Fifo:
		s = "|"
	}
	if c.New.Sparse {
		s += " sparse"
	}
	var old map[string][]byte
	if c.Old != nil {
		old = c.Old.Xattrs
	}
	for _, name := range attributeNames(old, c.New.Xattrs) {
		is, has := c.New.Xattrs[name]
		switch was, had := old[name]; {
		case !has:
			s += " -" + name
		case !had || !bytes.Equal(was, is):
			s += " +" + name
		}
	}
	if c.New.Link != "" {
		s += " = " + strings.TrimPrefix(string(c.New.Link), l.host+"/")
	}
	return s
}

func (l *lab) want(want string) {
	l.t.Helper()
	want = strings.TrimLeft(strings.ReplaceAll(want, "\t", ""), "\n")
	if got := l.text(l.diff()); got != want {
		l.t.Errorf("difference:\n%s\nwant:\n%s", got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
