package upper

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestBlockers(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"))
	show(t, []example{
		{"a device", "true", "mknod null c 1 3", "blocked device null\n"},
		{"the deletion of a device", "mknod null c 1 3", "rm null", "blocked device null\n"},
		{"a device in a deleted directory", "mkdir d; mknod d/null c 1 3", "rm -r d", "deleted d\nblocked device d/null\n"},
		{"another device", "mknod null c 1 3", "rm null; mknod null c 1 5", "blocked device null\n"},
		{"a device that was only copied", "mknod null c 1 3", "chmod 600 null; chmod 644 null", ""},
		{
			"an overlay attribute of the user's", "echo a > f", "setfattr -n trusted.overlay.redirect -v x f",
			"blocked xattr f\n",
		},
	})
}

// A new socket is made again by whoever listens on it; any other has no type.
func TestSockets(t *testing.T) {
	nstest.Require(t, nstest.Root)
	l := newLab(t, "mkdir __pycache__ gone; echo a > file")
	l.unmount()
	for _, name := range []string{"kept", "deleted", "gone/deep", "moded"} {
		listenOnce(t, filepath.Join(l.host, name))
	}
	l.mount()
	listenOnce(t, filepath.Join(l.merged, "new"))
	listenOnce(t, filepath.Join(l.merged, "__pycache__/new"))
	l.inView("rm file deleted; rm -r gone; touch kept; chmod 600 moded")
	listenOnce(t, filepath.Join(l.merged, "file"))
	l.want(`deleted gone
		ephemeral added __pycache__/new
		ephemeral added new
		blocked socket deleted
		blocked socket file
		blocked socket gone/deep
		blocked socket moded
	`)
}

// listenOnce leaves a socket that nobody listens on any more.
func listenOnce(t *testing.T, name string) {
	t.Helper()
	s, err := net.Listen("unix", name)
	must(t, err)
	s.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, s.Close())
}

// The kernel's marks for content that is elsewhere cannot come up with our mount
// options; an upper from other hands may have them.
func TestForeignOverlayMarksBlock(t *testing.T) {
	l := newLab(t, "echo a > f; echo b > g; mkdir d e")
	l.inView("chmod 600 f g; chmod 700 d e")
	l.unmount()
	up := l.env + "/layers/root/upper/"
	for _, x := range [][3]string{
		{"f", "metacopy", ""}, {"g", "protattr", "i"}, {"d", "redirect", "/x"}, {"e", "opaque", "x"},
	} {
		must(t, unix.Lsetxattr(up+x[0], overlayPrefix+x[1], []byte(x[2]), 0))
	}
	got := l.text(l.diff())
	for _, want := range []string{
		"blocked metacopy f\n", "blocked attribute g\n", "blocked redirect d\n", "blocked overlay e\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("difference lacks %q:\n%s", want, got)
		}
	}
}

func TestEveryBlockerNamesTheWayPast(t *testing.T) {
	l := newLab(t, "true")
	l.inView("mknod 'a b' c 1 3")
	d := l.diff()
	if len(d.Blockers) != 1 {
		t.Fatalf("blockers %v", d.Blockers)
	}
	if got, want := d.Blockers[0].Fix, "netsandbox reset e '"+l.host+"/a b'"; got != want {
		t.Errorf("fix %q, want %q", got, want)
	}
}

func TestOutsideBase(t *testing.T) {
	l := newLab(t, "mkdir in out other; echo a > out/f; echo b > other/f; echo c > in/f; mkdir gone; echo d > gone/f")
	l.base = l.host + "/in"
	l.inView("echo z > in/f; echo z > out/f; : >> other/f; mkdir -p out/new/deep; echo z > out/new/deep/f; rm -r gone; mkfifo out/p; mknod out/null c 1 3")
	l.want(`modified in/f
		blocked outside-base gone
		blocked outside-base out/f
		blocked outside-base out/new
		blocked device out/null
		blocked outside-base out/null
		blocked outside-base out/p
	`)
}

// The base itself can get other metadata, but neither go nor become something else:
// the originals are kept in it.
func TestBaseStays(t *testing.T) {
	for script, want := range map[string]string{
		"rm -r in":                          "deleted in/f\nblocked outside-base in\n",
		"rm -r in; echo z > in":             "deleted in/f\nblocked outside-base in\n",
		"rm -r in; ln -s other in":          "deleted in/f\nblocked outside-base in\n",
		"rm -r in; mkdir in; echo z > in/g": "deleted in/f\nadded in/g\n",
		"chmod 700 in":                      "modified in mode 0700 owner 0:0\n",
	} {
		l := newLab(t, "mkdir in; echo a > in/f")
		l.base = l.host + "/in"
		l.inView(script)
		t.Log(script)
		l.want(want)
		l.unmount()
	}
	l := newLab(t, "mkdir in; echo a > in/f")
	l.base = l.host + "/in"
	l.inView("rm -r in")
	if fix := l.diff().Blockers[0].Fix; fix != "netsandbox reset e --all --yes" {
		t.Errorf("fix %q", fix)
	}
}

func TestBaseIsNoPrefixOfNames(t *testing.T) {
	l := newLab(t, "mkdir in inner; echo a > inner/f")
	l.base = l.host + "/in"
	l.inView("echo z > inner/f")
	l.want("blocked outside-base inner/f\n")
}

func TestEphemeralUnlessStaged(t *testing.T) {
	l := newLab(t, "mkdir app; echo a > .bash_history")
	l.inView("mkdir app/__pycache__; echo x > app/__pycache__/m.pyc; echo y > app/x.pyc; echo z >> .bash_history; echo p > app/d.pid; rm -r app/__pycache__; mkdir app/__pycache__; echo q > app/__pycache__/n")
	l.want(`ephemeral modified .bash_history
		ephemeral added app/__pycache__
		ephemeral added app/__pycache__/n
		ephemeral added app/d.pid
		ephemeral added app/x.pyc
	`)
	must(t, MarkStaged(l.env, join(join(join("/", l.host), "app"), "__pycache__/n")))
	must(t, MarkStaged(l.env, join(join("/", l.host), ".bash_history")))
	l.want(`modified .bash_history
		added app/__pycache__/
		added app/__pycache__/n
		ephemeral added app/d.pid
		ephemeral added app/x.pyc
	`)
}

// The originals that transactions keep are no view's to take away.
func TestKeptOriginalsAreNotPlanned(t *testing.T) {
	l := newLab(t, "mkdir .netsandbox-apply-1; echo a > .netsandbox-apply-1/0; mkdir -m 0 .netsandbox-apply-2; echo b > f; mkdir .netsandbox-mine")
	l.inView("rm -r .netsandbox-apply-1; echo c > .netsandbox-apply-2/0; echo d > f; rmdir .netsandbox-mine")
	l.want(`deleted .netsandbox-mine
		modified f
		ephemeral deleted .netsandbox-apply-1
		ephemeral added .netsandbox-apply-2/0
	`)
}

func TestMountChangedBlocksTheLayer(t *testing.T) {
	l := newLab(t, "echo a > f")
	l.inView("echo b > f")
	must(t, os.WriteFile(l.env+"/layers/root/source.json",
		[]byte(`{"point":"`+l.host+`","dev":"99:99"}`), 0o600))
	d := l.diff()
	if len(d.Blockers) != 1 || d.Blockers[0].What != "mount-changed" || len(d.Changes) != 0 {
		t.Errorf("difference %+v, want one blocker mount-changed", d)
	}
}

func TestMountOverTheLowerBlocks(t *testing.T) {
	l := newLab(t, "mkdir d; echo a > d/f")
	l.inView("echo b > d/f; rm -r d; echo c > d")
	must(t, unix.Mount("tmpfs", l.host+"/d", "tmpfs", 0, "size=4k"))
	l.want("blocked mount d\n")
}

func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		base, path string
		want       bool
	}{
		{"/", "/tmp/x", true},
		{"/", "/tmp", true},
		{"/", "/tmpx", false},
		{"/tmp/work", "/tmp/work/f", false},
		{"/tmp/work", "/var/log/f", true},
		{"/", "/var/lib/dpkg/lock", true},
		{"/", "/var/lib/x/y.lock", true},
		{"/", "/home/u/yarn.lock", false},
		{"/", "/etc/.pwd.lock", true},
		{"/", "/home/u/.python_history", true},
		{"/", "/usr/lib/python3/__pycache__/a/b", true},
		{"/", "/etc/hosts", false},
		{"/", "/run/x.pid", true},
	} {
		if got := byProduct(tt.path, tt.base); got != tt.want {
			t.Errorf("byProduct(%q, base %q) = %v, want %v", tt.path, tt.base, got, tt.want)
		}
	}
}
