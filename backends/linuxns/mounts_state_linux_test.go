package linuxns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// The state directory is out of reach under whatever name it has: through a bind
// of a directory above it, a second mount of its filesystem, a subvolume mounted
// by itself. What is around it is there.
func TestStateDirectoryUnderEveryName(t *testing.T) {
	for _, k := range []loopfs.Kind{loopfs.Ext4, loopfs.XFS, loopfs.Btrfs} {
		t.Run(string(k), func(t *testing.T) {
			m := newMounted(t)
			image := loopfs.Image(t, k, 0)
			m.mkdir("disk")
			loopfs.Mount(t, k, image, loopfs.Options{At: m.path("disk")})
			dev := source(t, m.path("disk"))
			if k == loopfs.Btrfs {
				nstest.Require(t, nstest.Tool("btrfs"))
				run(t, "btrfs", "subvolume", "create", m.path("disk/sub"))
				m.mount(dev, "btrfs", 0, "subvol=sub", "subvolume")
			}
			m.mkdir("disk/sub/var/state")
			write(t, m.path("disk/sub/var/f"), "host\n")
			m.mount(dev, string(k), 0, "", "again")
			m.mount(m.path("disk/sub/var"), "", unix.MS_BIND, "", "parent")
			m.mount(m.path("disk/sub/var/state"), "", unix.MS_BIND, "", "itself")
			m.mkdir("outer")
			m.mkdir("e")
			m.mount("o", "overlay", 0, "lowerdir="+m.path("e")+":"+m.path("disk/sub"), "overlaid")
			m.mount(m.path("disk/sub"), "", unix.MS_BIND|unix.MS_REC, "", "outer/deep")
			names := []string{"disk/sub/var/state", "again/sub/var/state", "parent/state", "itself", "outer/deep/var/state", "overlaid/var/state"}
			if k == loopfs.Btrfs {
				names = append(names, "subvolume/var/state")
			}
			weak := plainEnv(t, m.path("disk/sub/var/state"), func(s *backends.Spec) { s.Mode = "caps" })
			weak.create()
			e := plainEnv(t, m.path("disk/sub/var/state"))
			e.create()
			for _, n := range names {
				m.says(weak, n, "ls -A "+n+"; cd "+n+" && ls environments 2>/dev/null; mkdir x 2>/dev/null || echo refused", "refused\n")
				m.says(e, n, "ls -A "+n+"; cd "+n+" && ls environments 2>/dev/null; mkdir x 2>/dev/null || echo refused", "refused\n")
			}
			m.says(e, "beside it", "cat disk/sub/var/f again/sub/var/f parent/f outer/deep/var/f", "host\nhost\nhost\nhost\n")
			m.says(e, "one file", "echo x > parent/f; cat disk/sub/var/f", "x\n")
			// Its name on the host is not its only inode: nor is one reached by searching.
			_, out := e.sh("find " + m.dir + " -name " + e.spec.ID + " 2>&1")
			if out != "" {
				t.Errorf("found %s", out)
			}
			if d, err := e.view().Changes(t.Context()); err != nil || len(d.Changes) != 1 || len(d.Blockers) > 0 {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

// Backups and searches of the whole tree succeed, whatever the cover covers. What
// transactions keep on this machine is closed to every view.
func TestSearchesSucceed(t *testing.T) {
	m := newMounted(t)
	m.mkdir("lib/state")
	write(t, m.path("lib/f"), "host\n")
	e := plainEnv(t, m.path("lib/state"))
	e.create()
	for _, script := range []string{
		"tar cf /dev/null -C " + m.dir + " lib", "tar cf - -C " + m.dir + " lib | tar tf - | grep -q lib/f",
		"find " + m.dir, "du -s " + m.dir, "find / -xdev -name '.netsandbox-apply-*' -prune -o -print > /dev/null", "grep -rq host " + m.dir, "cp -a " + m.path("lib") + " " + m.path("copy"),
	} {
		if status, out := e.sh(script); status != 0 || strings.Contains(out, "levels of symbolic links") {
			t.Errorf("%s: status %d: %s", script, status, out)
		}
	}
}

func TestStateDirectoryOnEveryFilesystem(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"), nstest.Tool("getfattr"))
	for _, k := range []loopfs.Kind{loopfs.Ext4, loopfs.XFS, loopfs.Btrfs, "tmpfs"} {
		t.Run(string(k), func(t *testing.T) {
			m := newMounted(t)
			if k == "tmpfs" {
				m.mount("x", "tmpfs", 0, "", "state")
			} else {
				m.loop(k, "state", loopfs.Options{})
			}
			write(t, m.path("f"), "host\n")
			write(t, m.path("gone"), "")
			e := plainEnv(t, m.path("state"))
			e.create()
			volatile := slices.ContainsFunc(e.made.Notes, func(n string) bool { return strings.Contains(n, "does not survive a reboot") })
			if volatile != (k == "tmpfs") {
				t.Errorf("notes %q", e.made.Notes)
			}
			m.says(e, "written", "set -e; echo x >> f; chown 33:42 f; setfattr -n user.k -v v f; rm gone; mkdir d; echo y > d/y; ln -s y d/l", "")
			m.says(e, "after a rebuild", "cat f d/l; stat -c %u:%g f; getfattr --only-values -n user.k f", "host\nx\ny\n33:42\nv")
			m.certain(e, "d", "d/l", "d/y", "f", "gone")
			for _, f := range probe(t, m.path("state")) {
				if f.Name == "state root" && (f.Status != "ok" || strings.Contains(f.Detail, "reboot") != volatile) {
					t.Errorf("doctor: %+v", f)
				}
			}
		})
	}
}

// Where a root is an overlay, as in a container, layers need a place that is none.
func TestRootOnAnOverlay(t *testing.T) {
	if answered(t) {
		return
	}
	m := newMounted(t)
	nstest.Require(t, nstest.UserNS, nstest.IDMap)
	outliveTheRoot(t)
	m.loop(loopfs.Ext4, "volume", loopfs.Options{})
	m.mount("x", "tmpfs", 0, "", "engine")
	m.mkdir("engine/u")
	m.mkdir("engine/w")
	m.mount("root", "overlay", 0, "lowerdir=/,upperdir="+m.path("engine/u")+",workdir="+m.path("engine/w"), "merged")
	pivot(t, m.path("merged"), m.path("volume"), "/proc", "/sys", "/dev", "/run", "/tmp")
	write(t, m.path("f"), "host\n")

	bad := plainEnv(t, m.path("state"))
	if _, err := bad.b.Create(t.Context(), bad.spec); err == nil || !strings.Contains(err.Error(), "on an overlay") || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("state on the overlay: %v", err)
	}
	want := map[string]string{"idmap /": "degraded", "state root": "missing"}
	said := func(state string) {
		t.Helper()
		for _, f := range probe(t, state) {
			if s, ok := want[f.Name]; ok && (f.Status != s || s != "ok" && f.Fix == "") {
				t.Errorf("doctor: %+v, want %s", f, s)
			}
		}
	}
	said(m.path("state"))
	want["state root"] = "ok"
	said(m.path("volume/state"))

	e := plainEnv(t, m.path("volume/state"))
	e.create()
	if e.made.Mode != "caps" || !strings.Contains(strings.Join(e.made.Notes, "\n"), "falls back to dropped capabilities") {
		t.Errorf("mode %s, notes %q", e.made.Mode, e.made.Notes)
	}
	m.says(e, "written", "cat f; echo x > f; echo y > n; ls volume/state", "host\n")
	m.says(e, "after a rebuild", "cat f n", "x\ny\n")
	m.says(e, "the layers under another name", "ls "+filepath.Join(m.path("volume/state"), "environments")+" 2>/dev/null || echo none", "none\n")
	if got := read(t, m.path("f")); got != "host\n" {
		t.Errorf("written through: %q", got)
	}
	if d, err := e.view().Changes(t.Context()); err != nil || len(d.Changes) < 2 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := e.view().Reset(t.Context(), backends.Reset{All: true, Stop: true}); err != nil {
		t.Error(err)
	}
	m.says(e, "after reset", "cat f", "host\n")
}

// outliveTheRoot removes the test's temporary directories by descriptor, after
// [testing.T.TempDir] did not find them below the root that the test ends with.
func outliveTheRoot(t *testing.T) {
	t.Helper()
	parent, err := os.Open(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var name string
	t.Cleanup(func() {
		defer parent.Close()
		rm := exec.Command("rm", "-rf", "--one-file-system", "--", name)
		rm.Dir = fmt.Sprintf("/proc/self/fd/%d", parent.Fd())
		if out, err := rm.CombinedOutput(); err != nil {
			t.Errorf("remove %s: %v: %s", name, err, out)
		}
	})
	name = filepath.Base(filepath.Dir(t.TempDir()))
}

// whereDoctor makes [TestRootOnAnOverlay] only ask the doctor about a state
// directory; see [probe].
const whereDoctor = "NETSANDBOX_TEST_DOCTOR_HERE"

func answered(t *testing.T) bool {
	t.Helper()
	dir := os.Getenv(whereDoctor)
	if dir == "" {
		return false
	}
	if err := json.NewEncoder(os.Stdout).Encode(Doctor{}.Probe(t.Context(), dir)); err != nil {
		t.Fatal(err)
	}
	return true
}

// probe asks the doctor in a process of its own: its checks have threads, and
// those of this process are not all in the test's namespaces.
func probe(t *testing.T, stateRoot string) []backends.Finding {
	t.Helper()
	c := exec.Command("/proc/self/exe", "-test.run=^TestRootOnAnOverlay$")
	c.Env = append(os.Environ(), whereDoctor+"="+stateRoot)
	c.Dir = "/"
	out, err := c.Output()
	if err != nil {
		t.Fatalf("ask the doctor: %v\n%s", err, out)
	}
	var found []backends.Finding
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&found); err != nil {
		t.Fatalf("decode %q: %v", out, err)
	}
	return found
}
