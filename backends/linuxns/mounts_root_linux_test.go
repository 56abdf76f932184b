package linuxns

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// What is mounted on top of the root directory is beyond every path of a process
// that was there before, and the root of one that joins the mount namespace. In
// a view it must be neither. The kernel makes no user namespace for such a
// process: it takes it for one in a chroot.
func TestMountsOnTheRoot(t *testing.T) {
	m := newMounted(t)
	nstest.Require(t, nstest.UserNS, nstest.IDMap) // asked before it is not to be had
	write(t, m.path("f"), "host\n")
	for range 2 {
		if err := unix.Mount("x", "/", "tmpfs", 0, "mode=755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount("/", unix.MNT_DETACH) })
	}
	write(t, "/../on-top", "") // ".." of the root leads onto what is on it
	e := newEnv(t)
	for _, b := range e.made.Mounts {
		if b.Point == "/" && b.FS == "tmpfs" {
			t.Errorf("taken for the root: %+v", b)
		}
	}
	if notes := strings.Join(e.made.Notes, "\n"); e.made.Mode != "caps" || !strings.Contains(notes, "falls back to dropped capabilities") {
		t.Errorf("mode %s, notes %s", e.made.Mode, notes)
	}
	for range 3 { // the first build starts in another directory than the next
		m.says(e, "the root is what the host's processes see", "cat f; ls -d /on-top /../on-top 2>/dev/null", "host\n")
	}
	e.must("sh", "-c", "echo x > "+m.path("new"))
	m.certain(e, "new")
	// A canary's layers are made by one who joined the view's mount namespace.
	o, err := e.view().Canary(t.Context(), backends.InCandidate, backends.Probe{
		Argv: []string{"sh", "-c", "cat " + m.path("new") + " && ! ls /on-top"}, Cwd: "/", Timeout: 10 * time.Second,
		Env: []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil || !o.OK() || !strings.HasPrefix(o.Output, "x") {
		t.Errorf("candidate: %+v, %v", o, err)
	}
}

// A root that cannot be written is one in the view, with the places that can.
func TestReadOnlyRoot(t *testing.T) {
	m := newMounted(t)
	nstest.Require(t, nstest.UserNS, nstest.IDMap)
	m.mount("/", "", unix.MS_BIND, "", "root")
	m.loop(loopfs.Ext4, "rw", loopfs.Options{})
	pivot(t, m.path("root"), m.path("rw"), "/proc", "/sys", "/dev", "/run", "/tmp")
	remount(t, "bind,ro", "/")
	t.Cleanup(func() { remount(t, "bind,rw", "/") })
	e := newEnv(t)
	for _, b := range e.made.Mounts {
		if b.Point == "/" && (b.Treatment != "read-only" || b.Reason != "read-only on the host") {
			t.Errorf("the root: %+v", b)
		}
	}
	_, out := e.sh("echo x > /srv/new; echo y > " + m.path("rw/new") + "; cat " + m.path("rw/new"))
	if !strings.Contains(out, "Read-only file system") || !strings.HasSuffix(out, "\ny\n") {
		t.Errorf("said %q", out)
	}
	m.certain(e, "rw/new")
}

// pivot makes a mount the root of the test's mount namespace, with what is
// mounted at and below the given places.
func pivot(t *testing.T, root string, carried ...string) {
	t.Helper()
	for _, c := range carried {
		if err := unix.Mount(c, root+c, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			t.Fatalf("carry %s: %v", c, err)
		}
	}
	if err := unix.Chdir(root); err != nil {
		t.Fatal(err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		t.Fatalf("pivot: %v", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chdir("/"); err != nil {
		t.Fatal(err)
	}
}
