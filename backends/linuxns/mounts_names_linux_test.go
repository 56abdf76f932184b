package linuxns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// oddNames are names that a table of text lines, an option string with commas
// and colons, or JSON could get wrong.
var oddNames = []string{
	"with space", "new\nline", "tab\tand\\backslash", `octal\040`, "comma,colon:", `"quoted'`, "-dash ", "#hash",
	"esc\x1b[2J", "bad\xff\xfeutf8", strings.Repeat("n", 255), "ünï", "//deleted"[2:],
}

func TestMountPointsWithOddNames(t *testing.T) {
	m := newMounted(t)
	long := m.dir
	for len(long) < 1500 {
		long = filepath.Join(long, strings.Repeat("d", 250))
	}
	points := []string{long}
	for _, n := range oddNames {
		points = append(points, m.path(n))
	}
	for _, p := range points {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("x", p, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(p, unix.MNT_DETACH) })
		write(t, p+"/f", "host\n")
	}
	e := newEnv(t)
	treated := map[string]backends.Mount{}
	for _, b := range e.made.Mounts {
		treated[b.Point] = b
	}
	for _, p := range points {
		if b := treated[change.Escape(p)]; b.Treatment != "layer" {
			t.Errorf("%q: %+v", p, b)
		}
		e.must("sh", "-c", `echo x >> "$1/f"; cat "$1/f"`, "sh", p)
		if got := e.must("cat", p+"/f"); got != "host\nx\n" { // by another view
			t.Errorf("%q shows %q", p, got)
		}
		if got := read(t, p+"/f"); got != "host\n" {
			t.Errorf("%q on the host holds %q", p, got)
		}
	}
	d, err := e.view().Changes(t.Context())
	if err != nil || len(d.Changes) != len(points) || len(d.Blockers) > 0 {
		t.Errorf("%d changes of %d, %+v, %v", len(d.Changes), len(points), d.Blockers, err)
	}
}

// The source of a bind mount may be removed: the mount keeps it alive.
func TestMountsWhoseSourceIsGone(t *testing.T) {
	m := newMounted(t)
	m.loop(loopfs.Ext4, "fs", loopfs.Options{})
	m.mkdir("fs/dir")
	write(t, m.path("fs/dir/f"), "host\n")
	write(t, m.path("fs/file"), "host\n")
	write(t, m.path("file"), "")
	m.mount(m.path("fs/dir"), "", unix.MS_BIND, "", "dir")
	m.over(m.path("fs/file"), "", unix.MS_BIND, "", "file")
	if err := os.RemoveAll(m.path("fs/dir")); err != nil {
		t.Fatal(err)
	}
	m.mkdir("fs/dir") // another one of that name
	if err := os.Remove(m.path("fs/file")); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t)
	m.treated(e, "file", "copy", "single file")
	m.says(e, "the file", "cat file; echo x > file; cat file", "host\nx\n")
	m.says(e, "its source is not there", "ls fs fs/dir", "fs:\ndir\nlost+found\n\nfs/dir:\n")
	m.treated(e, "dir", "excluded", "gone from its filesystem")
	if status, out := e.sh("ls " + m.path("dir")); status == 0 || !strings.Contains(out, "Permission denied") {
		t.Errorf("status %d: %s", status, out)
	}
}

// A mount point that is removed elsewhere takes the mount along.
func TestMountPointRemoved(t *testing.T) {
	m := newMounted(t)
	nstest.Require(t, nstest.Tool("unshare"))
	m.mount("x", "tmpfs", 0, "", "point")
	write(t, m.path("point/f"), "host\n")
	e := newEnv(t)
	m.says(e, "there", "cat point/f; echo x > point/own", "host\n")
	// The kernel unmounts what is on a directory that another mount namespace removes.
	run(t, "unshare", "--mount", "sh", "-c", "umount "+m.path("point")+"; rmdir "+m.path("point"))
	if exists(m.path("point/f")) {
		t.Fatal("the mount is still there")
	}
	m.says(e, "gone", "ls -d point 2>/dev/null || echo gone", "gone\n")
	m.blocked(e, "mount-changed", "point")
}

// blocked wants one blocker of a kind for a path.
func (m mounted) blocked(e *env, what, at string) change.Blocker {
	m.t.Helper()
	d, err := e.view().Changes(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, b := range d.Blockers {
		if b.What == what && b.Subject == change.Escape(m.path(at)) {
			return b
		}
	}
	m.t.Fatalf("no %s for %s in %+v", what, at, d.Blockers)
	return change.Blocker{}
}
