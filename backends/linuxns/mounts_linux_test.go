package linuxns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// mounted is a host of the test's own: a mount namespace with many kinds of
// mounts below one directory.
type mounted struct {
	t   *testing.T
	dir string
}

func newMounted(t *testing.T) mounted {
	t.Helper()
	nstest.NewMount(t, nstest.Root, nstest.Overlay)
	dir, err := os.MkdirTemp("/srv", "nsb-mounts-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// By descriptor: a test may have another root at its end.
	parent, err := os.Open("/srv")
	if err != nil {
		t.Fatal(err)
	}
	m := mounted{t, dir}
	t.Cleanup(func() {
		defer parent.Close()
		// A directory with a mount in it would take what is mounted along.
		rm := exec.Command("rm", "-r", "--one-file-system", "--", filepath.Base(dir))
		rm.Dir = fmt.Sprintf("/proc/self/fd/%d", parent.Fd())
		if out, err := rm.CombinedOutput(); err != nil {
			t.Errorf("remove %s: %v: %s", dir, err, out)
		}
	})
	return m
}

func (m mounted) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir}, elem...)...)
}

func (m mounted) mount(source, fs string, flags uintptr, options string, at string) {
	m.t.Helper()
	if err := os.MkdirAll(m.path(at), 0o755); err != nil {
		m.t.Fatal(err)
	}
	m.over(source, fs, flags, options, at)
}

// over mounts on something that is there.
func (m mounted) over(source, fs string, flags uintptr, options string, at string) {
	m.t.Helper()
	if err := unix.Mount(source, m.path(at), fs, flags, options); err != nil {
		m.t.Fatalf("mount %s on %s: %v", fs, at, err)
	}
	m.t.Cleanup(func() { unix.Unmount(m.path(at), unix.MNT_DETACH) })
}

func (m mounted) mkdir(name string) {
	m.t.Helper()
	if err := os.MkdirAll(m.path(name), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

// treatment returns how create said that a mount appears.
func (m mounted) treatment(e *env, at string) backends.Mount {
	m.t.Helper()
	for _, b := range e.made.Mounts {
		if b.Point == m.path(at) {
			return b
		}
	}
	m.t.Fatalf("create did not name %s", at)
	return backends.Mount{}
}

func TestEveryKindOfMount(t *testing.T) {
	m := newMounted(t)
	m.mount("a", "tmpfs", 0, "", "fs")
	write(t, m.path("fs/f"), "host\n")
	m.mkdir("fs/inner")
	m.mount("b", "tmpfs", 0, "", "fs/inner")
	write(t, m.path("fs/inner/f"), "host\n")
	m.mount(m.path("fs"), "", unix.MS_BIND, "", "alias") // sorts before its source
	m.mount("c", "tmpfs", 0, "", "readonly")
	write(t, m.path("readonly/f"), "host\n")
	if err := unix.Mount("", m.path("readonly"), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	write(t, m.path("single"), "")
	m.over(m.path("fs/f"), "", unix.MS_BIND, "", "single")
	outside := "/dev/shm/nsb-" + filepath.Base(m.dir) // a source that no view has
	write(t, outside, "host\n")
	t.Cleanup(func() { os.Remove(outside) })
	write(t, m.path("copy"), "")
	m.over(outside, "", unix.MS_BIND, "", "copy")
	for _, d := range []string{"o/l", "o/u", "o/w"} {
		m.mkdir(d)
	}
	write(t, m.path("o/l/f"), "host\n")
	m.mount("o", "overlay", 0, "lowerdir="+m.path("o/l")+",upperdir="+m.path("o/u")+",workdir="+m.path("o/w"), "overlay")
	m.mount("proc", "proc", 0, "", "chroot/proc")

	e := newEnv(t)
	for at, want := range map[string]string{
		"fs": "layer", "fs/inner": "layer", "alias": "alias", "readonly": "read-only",
		"single": "alias", "copy": "copy", "overlay": "read-only", "chroot/proc": "excluded",
	} {
		if got := m.treatment(e, at); got.Treatment != want {
			t.Errorf("%s: %+v, want %s", at, got, want)
		}
	}
	check := func(name, script, want string) {
		t.Helper()
		if _, out := e.sh("cd " + m.dir + "; " + script); out != want {
			t.Errorf("%s: %q, want %q", name, out, want)
		}
	}
	check("content of a mount below a covered directory", "cat fs/f fs/inner/f overlay/f readonly/f copy", "host\nhost\nhost\nhost\nhost\n")
	check("each layer takes writes", "echo x >> fs/f; chown 33:42 fs/inner/f; echo x >> fs/inner/f; cat fs/f fs/inner/f", "host\nx\nhost\nx\n")
	check("both names are one file", "cat alias/f single", "host\nx\nhost\nx\n")
	check("an alias does not show what is mounted below its source", "ls alias/inner", "")
	check("what the host cannot write, the view cannot", "echo x 2>/dev/null >> readonly/f || echo refused; echo x 2>/dev/null >> overlay/f || echo refused", "refused\nrefused\n")
	check("what the host cannot execute", "cp /bin/true fs/true; fs/true && echo ran", "ran\n")
	check("a private copy", "echo x >> copy; cat copy", "host\nx\n")
	check("which is kept", "cat copy", "host\nx\n")
	check("no proc of the host", "ls chroot/proc", "")
	check("after a rebuild", "cat fs/f fs/inner/f; stat -c %u:%g fs/inner/f", "host\nx\nhost\nx\n33:42\n")
	for _, f := range []string{"fs/f", "fs/inner/f", "readonly/f", "overlay/f", "copy"} {
		if got := read(t, m.path(f)); got != "host\n" {
			t.Errorf("%s on the host holds %q", f, got)
		}
	}
}

func TestMountsComeAndGo(t *testing.T) {
	m := newMounted(t)
	e := newEnv(t)
	m.mount("late", "tmpfs", 0, "", "late")
	write(t, m.path("late/f"), "late\n")
	if got := e.must("cat", m.path("late/f")); got != "late\n" {
		t.Errorf("a mount that came later: %q", got)
	}
	e.must("sh", "-c", "echo mine > "+m.path("late/own"))
	m.unmount("late") // the view does not pin it
	if got := e.must("ls", m.path("late")); got != "" {
		t.Errorf("after it went: %q", got)
	}
	m.over("proc", "proc", 0, "", "late")
	if _, out := e.run("ls", m.path("late")); out != "" {
		t.Errorf("kernel filesystem in its place: %q", out)
	}
}

// A symlink made inside must not lead a builder, which is root on the host, to
// another place.
func TestMountPointsThatBecameSymlinks(t *testing.T) {
	m := newMounted(t)
	m.mkdir("victim")
	m.mkdir("point/fs")
	e := newEnv(t)
	e.must("sh", "-c", "cd "+m.dir+"; rm -r point; ln -s "+m.path("victim")+" point; mkdir -p victim/fs")
	m.mount("late", "tmpfs", 0, "", "point/fs")
	write(t, m.path("point/fs/f"), "")
	if got := e.must("ls", m.path("victim/fs")); got != "" {
		t.Errorf("mounted through a symlink: %q", got)
	}
	if exists(m.path("victim/fs")) {
		t.Error("made a directory on the host")
	}
}

func TestStateDirectoryWhereNoOverlayCanBe(t *testing.T) {
	m := newMounted(t)
	for _, d := range []string{"l", "u", "w"} {
		m.mkdir(d)
	}
	m.mount("o", "overlay", 0, "lowerdir="+m.path("l")+",upperdir="+m.path("u")+",workdir="+m.path("w"), "state")
	e := plainEnv(t, m.path("state"))
	_, err := e.b.Create(t.Context(), e.spec)
	if err == nil || !strings.Contains(err.Error(), "on an overlay") || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("error %v", err)
	}
}

func TestStateDirectoryOfItsOwn(t *testing.T) {
	m := newMounted(t)
	m.mount("state", "tmpfs", 0, "mode=700", "state")
	m.mount(m.dir, "", unix.MS_BIND, "", "seen")
	e := plainEnv(t, m.path("state"))
	e.create()
	if _, out := e.sh("ls " + m.path("state") + "; ls " + m.path("seen/state")); strings.Contains(out, "environments\n") {
		t.Errorf("the state directory shows: %s", out)
	}
	e.must("sh", "-c", "echo x > "+m.path("y"))
	if exists(m.path("y")) {
		t.Error("written through")
	}
}

func TestHiddenPaths(t *testing.T) {
	m := newMounted(t)
	m.mkdir("secrets")
	write(t, m.path("secrets/key"), "secret\n")
	write(t, m.path("token"), "secret\n")
	m.mount(m.path("secrets"), "", unix.MS_BIND, "", "elsewhere")
	e := newEnv(t, func(s *backends.Spec) { s.Hide = []string{m.path("secrets"), m.path("token")} })
	if _, out := e.sh("cd " + m.dir + "; cat secrets/key elsewhere/key token; umount token secrets"); strings.Contains(out, "secret\n") {
		t.Errorf("shown: %s", out)
	}
}

// A filesystem whose server is dead hangs whoever looks at it, for good.
func TestMountThatDoesNotAnswer(t *testing.T) {
	m := newMounted(t)
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Closing it ends the connection, and with it every wait.
	t.Cleanup(func() { dev.Close() })
	m.mount("dead", "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev.Fd()), "dead")
	started := time.Now()
	e := newEnv(t)
	if took := time.Since(started); took > 30*time.Second {
		t.Errorf("create took %v", took)
	}
	if got := m.treatment(e, "dead"); got.Treatment != "excluded" || !strings.Contains(got.Reason, "did not answer within") {
		t.Errorf("treated as %+v", got)
	}
	if status, out := e.run("ls", m.path("dead")); status == 0 {
		t.Errorf("shown as empty: %q", out)
	}
	started = time.Now()
	e.must("true")
	if took := time.Since(started); took > 4*time.Second {
		t.Errorf("it was waited for again: %v", took)
	}
}
