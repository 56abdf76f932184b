package linuxns

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// elsewhere makes a file on a filesystem that no view has, and removes it with the
// test.
func elsewhere(t *testing.T, name, content string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "nsb-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write(t, filepath.Join(dir, name), content)
	return filepath.Join(dir, name)
}

// A resolv.conf as container engines mount it. The command that edits it must
// see its edit, the host's next version must reach a view that did not, and a
// plan must not pass over it.
func TestMountOfASingleFile(t *testing.T) {
	m := newMounted(t)
	src := elsewhere(t, "resolv", "host\n")
	for at, from := range map[string]string{"conf": src, "second": src, "conf.json": elsewhere(t, "x", "host\n"), "conf.tmp": elsewhere(t, "y", "host\n")} {
		write(t, m.path(at), "below\n")
		m.over(from, "", unix.MS_BIND, "", at)
	}
	e := newEnv(t)
	m.treated(e, "conf", "copy", "a change to it blocks a plan")
	m.says(e, "content", "cat conf second conf.json conf.tmp", "host\nhost\nhost\nhost\n")
	m.certain(e)

	write(t, src, "later\n") // in place, as the engine does it
	m.says(e, "the host's next version", "cat conf; touch conf; cat conf", "later\nlater\n")
	m.certain(e) // touched is not changed

	m.says(e, "an edit", "echo mine >> conf; cat conf; mv conf x 2>/dev/null || echo busy; chmod 600 conf.tmp; cat second", "later\nmine\nbusy\nlater\nmine\n")
	b := m.blocked(e, "mounted-file", "conf")
	if !strings.Contains(b.Reason, "private copy") || b.Fix != "netsandbox reset test "+m.path("conf") {
		t.Errorf("blocker %+v", b)
	}
	m.blocked(e, "mounted-file", "conf.tmp")
	write(t, src, "newest\n")
	m.says(e, "what was edited is kept", "cat conf conf.json second", "later\nmine\nhost\nlater\nmine\n")
	if got := read(t, src); got != "newest\n" {
		t.Errorf("written through: %q", got)
	}

	err := e.view().Reset(t.Context(), backends.Reset{Paths: []change.Path{change.Path(m.path("conf"))}})
	if err != nil {
		t.Fatal(err)
	}
	m.says(e, "after reset", "cat conf", "newest\n")
	m.blocked(e, "mounted-file", "conf.tmp")
	if err := e.view().Reset(t.Context(), backends.Reset{All: true}); err != nil {
		t.Fatal(err)
	}
	m.certain(e)
	if err := unix.Unmount(m.path("conf"), 0); err != nil {
		t.Fatal(err)
	}
	m.says(e, "when the mount is gone", "cat conf; echo x >> conf", "below\n")
	m.certain(e, "conf")
}

// An object that is mounted elsewhere as well: both names are one in the view.
// On the host the second would go on showing the old one.
func TestSourceOfABind(t *testing.T) {
	m := newMounted(t)
	m.mkdir("dir/sub")
	for _, f := range []string{"file", "seen", "dir/f", "dirseen"} {
		write(t, m.path(f), "host\n")
	}
	m.over(m.path("file"), "", unix.MS_BIND, "", "seen")
	m.mount(m.path("dir"), "", unix.MS_BIND, "", "bound")
	e := newEnv(t)
	m.says(e, "one file", "echo x >> seen; echo y >> bound/f; chmod 700 dir; cat file dir/f", "host\nx\nhost\ny\n")
	d, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var blocked []string
	for _, b := range d.Blockers {
		blocked = append(blocked, b.What+" "+strings.TrimPrefix(b.Subject, m.dir+"/"))
	}
	// The directory stays the one it is, and what is in it changes under both names.
	if !slices.Equal(blocked, []string{"mounted-file file"}) {
		t.Errorf("blocked %v", d.Blockers)
	}
	m.says(e, "take the directory away", "rm -r dir/sub dir/f; rmdir dir", "")
	m.blocked(e, "mounted-file", "dir")
	m.says(e, "and what shows it", "ls bound 2>/dev/null || echo gone", "gone\n")
}
