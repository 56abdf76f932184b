package linuxns

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// says runs a script in the directory of the test's mounts and compares what it
// wrote.
func (m mounted) says(e *env, name, script, want string) {
	m.t.Helper()
	if _, out := e.sh("cd " + m.dir + "; " + script); out != want {
		m.t.Errorf("%s: %q, want %q", name, out, want)
	}
}

// loop mounts a new filesystem.
func (m mounted) loop(k loopfs.Kind, at string, o loopfs.Options) {
	m.t.Helper()
	m.mkdir(at)
	o.At = m.path(at)
	loopfs.Make(m.t, k, 0, o)
}

// treated fails unless the mount appears as wanted, with a reason that says so.
func (m mounted) treated(e *env, at, want, reason string) {
	m.t.Helper()
	if got := m.treatment(e, at); got.Treatment != want || !strings.Contains(got.Reason, reason) {
		m.t.Errorf("%s: %+v, want %s: %s", at, got, want, reason)
	}
}

// certain fails unless the differences are exactly these paths and nothing
// stands in their way.
func (m mounted) certain(e *env, paths ...string) backends.Difference {
	m.t.Helper()
	d, err := e.view().Changes(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	var got []string
	for _, c := range d.Changes {
		got = append(got, strings.TrimPrefix(string(c.Path), m.dir+"/"))
	}
	slices.Sort(paths)
	if !slices.Equal(got, paths) {
		m.t.Errorf("changes %v, want %v", got, paths)
	}
	for _, b := range d.Blockers {
		m.t.Errorf("blocked: %+v", b)
	}
	return d
}

func TestLowersOnEveryFilesystem(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"), nstest.Tool("getfattr"))
	for _, k := range []loopfs.Kind{loopfs.Ext4, loopfs.XFS, loopfs.Btrfs, "tmpfs"} {
		t.Run(string(k), func(t *testing.T) {
			m := newMounted(t)
			if k == "tmpfs" {
				m.mount("x", "tmpfs", 0, "", "fs")
			} else {
				m.loop(k, "fs", loopfs.Options{})
			}
			m.mkdir("fs/d")
			for _, f := range []string{"edit", "gone", "kept", "owner"} {
				write(t, m.path("fs/d", f), "host\n")
			}
			e := newEnv(t)
			m.treated(e, "fs", "layer", "")
			m.says(e, "written", `cd fs/d; echo x >> edit; rm gone; chown 33:42 owner; setfattr -n user.k -v v owner
				mkdir new; echo y > new/f; chmod 4750 new/f; cat edit; stat -c %u:%g owner`, "host\nx\n33:42\n")
			m.says(e, "after a rebuild", `cd fs/d; ls; getfattr --only-values -n user.k owner; stat -c %a:%u new/f`,
				"edit\nkept\nnew\nowner\nv4750:0\n")
			d := m.certain(e, "fs/d/edit", "fs/d/gone", "fs/d/new", "fs/d/new/f", "fs/d/owner")
			for _, c := range d.Changes {
				if c.Path == change.Path(m.path("fs/d/owner")) && (c.New.UID != 33 || c.Old.UID != 0) {
					t.Errorf("owner: %+v", c)
				}
			}
			if out := run(t, "ls", m.path("fs/d")); out != "edit\ngone\nkept\nowner\n" {
				t.Errorf("the host has %q", out)
			}
			// The host goes on: an edit in place, and one by another file.
			write(t, m.path("fs/d/kept"), "later\n")
			m.says(e, "the host's next", "cat fs/d/kept", "later\n")
		})
	}
}

func TestSubvolumes(t *testing.T) {
	m := newMounted(t)
	nstest.Require(t, nstest.Tool("btrfs"))
	image := loopfs.Image(t, loopfs.Btrfs, 0)
	m.mkdir("all")
	loopfs.Mount(t, loopfs.Btrfs, image, loopfs.Options{At: m.path("all")})
	for _, s := range []string{"all/home", "all/home/nested", "all/own"} {
		run(t, "btrfs", "subvolume", "create", m.path(s))
		write(t, m.path(s, "f"), "host\n")
	}
	dev := source(t, m.path("all"))
	m.mount(dev, "btrfs", 0, "subvol=home", "home")
	m.mount(m.path("home/nested"), "", unix.MS_BIND, "", "bound")

	e := newEnv(t)
	m.treated(e, "all", "layer", "")
	m.treated(e, "home", "layer", "")
	m.says(e, "one file under three names", "echo a >> home/f; echo b >> all/home/nested/f; cat all/home/f home/nested/f bound/f",
		"host\na\nhost\nb\nhost\nb\n")
	m.says(e, "and one that has none", "echo c >> all/own/f; cat all/own/f", "host\nc\n")
	m.says(e, "after a rebuild", "cat all/home/f bound/f all/own/f", "host\na\nhost\nb\nhost\nc\n")
	d, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Each by the path at which it is used: a subvolume that is mounted has its own.
	if len(d.Blockers) > 0 || len(d.Changes) != 3 {
		t.Errorf("changes %+v, blockers %+v", d.Changes, d.Blockers)
	}
	for _, c := range d.Changes {
		if p := strings.TrimPrefix(string(c.Path), m.dir+"/"); p != "home/f" && p != "all/own/f" && p != "bound/f" && p != "home/nested/f" {
			t.Errorf("changed %s", p)
		}
	}
}

// source returns what is mounted at a path.
func source(t *testing.T, at string) string {
	t.Helper()
	nstest.Require(t, nstest.Tool("findmnt"))
	dev, _, _ := strings.Cut(strings.TrimSpace(run(t, "findmnt", "-nro", "SOURCE", "--mountpoint", at)), "[")
	return dev
}

// What takes no layer is named with its reason, and is neither empty nor a way
// to write to the host.
func TestWhatTakesNoLayer(t *testing.T) {
	m := newMounted(t)
	tree := t.TempDir()
	write(t, tree+"/f", "host\n")
	m.loop(loopfs.Squashfs, "squash", loopfs.Options{Tree: tree})
	m.loop(loopfs.Ext4, "fs", loopfs.Options{})
	write(t, m.path("fs/f"), "host\n")
	remount(t, "ro", m.path("fs")) // the filesystem, and not only the mount
	m.mount("x", "ramfs", 0, "", "ram")
	write(t, m.path("ram/f"), "host\n")
	m.overlay("one")
	write(t, m.path("one/f"), "host\n")
	// As deep as overlays can be stacked: not even one without an upper fits on it.
	m.mkdir("e")
	m.mount("o", "overlay", 0, "lowerdir="+m.path("one")+":"+m.path("e"), "two")

	e := newEnv(t)
	m.treated(e, "squash", "read-only", "read-only on the host")
	m.treated(e, "fs", "read-only", "read-only on the host")
	m.treated(e, "ram", "read-only", "ramfs cannot be layered")
	m.treated(e, "one", "read-only", "overlay cannot be layered")
	m.treated(e, "two", "excluded", "without a layer: create overlay")
	for _, at := range []string{"squash", "fs", "ram", "one"} {
		m.says(e, at, "cat "+at+"/f; echo x 2>/dev/null > "+at+"/f || echo refused; echo x 2>/dev/null > "+at+"/n || echo refused", "host\nrefused\nrefused\n")
	}
	if status, out := e.sh("ls " + m.path("two")); status == 0 || !strings.Contains(out, "Permission denied") {
		t.Errorf("status %d: %s", status, out)
	}
	m.certain(e)
}

func remount(t *testing.T, options, at string) {
	t.Helper()
	nstest.Require(t, nstest.Tool("mount"))
	run(t, "mount", "-o", "remount,"+options, at)
}

// overlay mounts one with layers of its own.
func (m mounted) overlay(at string) {
	m.t.Helper()
	dir := m.t.TempDir()
	for _, d := range []string{"l", "u", "w"} {
		if err := os.Mkdir(dir+"/"+d, 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	m.mount("o", "overlay", 0, "lowerdir="+dir+"/l,upperdir="+dir+"/u,workdir="+dir+"/w", at)
}

// The view forbids what the mount forbids, whatever the filesystem would allow.
func TestWhatMountsForbid(t *testing.T) {
	m := newMounted(t)
	for at, flags := range map[string]uintptr{
		"noexec": unix.MS_NOEXEC, "nosuid": unix.MS_NOSUID, "nolinks": unix.MS_NOSYMFOLLOW, "ro": 0,
	} {
		m.mount("x", "tmpfs", flags, "mode=755", at)
		run(t, "cp", "/usr/bin/id", m.path(at, "id"))
		run(t, "chown", "33:33", m.path(at, "id"))
		run(t, "chmod", "6755", m.path(at, "id"))
		run(t, "ln", "-s", "id", m.path(at, "link"))
	}
	m.mount(m.path("nosuid"), "", unix.MS_BIND, "", "again") // an alias with flags of its own
	remount(t, "bind,noexec", m.path("again"))
	remount(t, "bind,ro", m.path("ro"))
	e := newEnv(t)
	m.says(e, "noexec", "noexec/id -u 2>/dev/null || echo refused", "refused\n")
	m.says(e, "nosuid", "nosuid/id -u; ro/id -u", "0\n33\n")
	m.says(e, "nosymfollow", "nolinks/id -u; nolinks/link -u 2>/dev/null || echo refused", "33\nrefused\n")
	m.says(e, "alias", "again/id 2>/dev/null || echo refused; echo x > again/f; cat nosuid/f", "refused\nx\n")
	m.says(e, "read-only", "rm ro/id 2>/dev/null || echo refused", "refused\n")
}

// One layer can be written to through one name only; the other shows it.
func TestReadOnlyNameOfWhatCanBeWritten(t *testing.T) {
	m := newMounted(t)
	m.loop(loopfs.Ext4, "a", loopfs.Options{})
	m.mkdir("a/data")
	write(t, m.path("a/data/f"), "host\n")
	m.mount(m.path("a"), "", unix.MS_BIND, "", "whole")
	m.mount(m.path("a/data"), "", unix.MS_BIND, "", "data")
	remount(t, "bind,ro", m.path("a"))
	remount(t, "bind,ro", m.path("whole"))
	e := newEnv(t)
	m.says(e, "through the one that allows it", "echo x >> data/f; cat a/data/f whole/data/f; echo y 2>/dev/null >> a/data/f || echo refused",
		"host\nx\nhost\nx\nrefused\n")
	m.certain(e, "data/f")
}

func TestPropagation(t *testing.T) {
	m := newMounted(t)
	for at, flags := range map[string]uintptr{"shared": unix.MS_SHARED, "slave": unix.MS_SLAVE, "unbindable": unix.MS_UNBINDABLE} {
		m.mount("x", "tmpfs", 0, "", at)
		if flags == unix.MS_SLAVE {
			if err := unix.Mount("", m.path(at), "", unix.MS_SHARED, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Mount("", m.path(at), "", flags, ""); err != nil {
			t.Fatal(err)
		}
		m.mkdir(at + "/d")
		write(t, m.path(at, "f"), "host\n")
	}
	e := newEnv(t)
	for _, at := range []string{"shared", "slave", "unbindable"} {
		m.treated(e, at, "layer", "")
		m.says(e, at, "mount -t tmpfs x "+at+"/d; echo x > "+at+"/d/inside; cat "+at+"/f "+at+"/d/inside", "host\nx\n")
		if exists(m.path(at, "d/inside")) {
			t.Errorf("%s: a mount made inside came out", at)
		}
	}
}
