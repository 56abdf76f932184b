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
	for _, tt := range []struct{ name, host, view, want string }{
		{"a FIFO", "true", "mkfifo p", "blocked fifo p\n"},
		{"a FIFO in a file's place", "echo a > f", "rm f; mkfifo f", "blocked fifo f\n"},
		{"the deletion of a FIFO", "mkfifo p", "rm p", "blocked fifo p\n"},
		{"a FIFO in a deleted directory", "mkdir d; mkfifo d/p", "rm -r d", "deleted d\nblocked fifo d/p\n"},
		{"a device", "true", "mknod null c 1 3", "blocked device null\n"},
		{
			"a hard-link group made inside", "echo a > f", "ln f g",
			"added g\nblocked hardlink g\n",
		},
		{
			"a changed hard-link group names each", "true", "echo x > f; ln f g",
			"added f\nadded g\nblocked hardlink f\nblocked hardlink g\n",
		},
		{
			"whiteouts are no group", "echo a > f; echo b > g; echo c > h", "rm f g h",
			"deleted f\ndeleted g\ndeleted h\n",
		},
		{"an attribute", "echo a > f; mkdir d", "setfattr -n user.k -v v f; setfattr -n user.k -v v d", "blocked xattr d\nblocked xattr f\n"},
		{"an equal attribute is none", "echo a > f; setfattr -n user.k -v v f", "chmod 600 f", "modified f mode 0600 owner 0:0\n"},
		{"a removed attribute", "echo a > f; setfattr -n user.k -v v f", "setfattr -x user.k f", "blocked xattr f\n"},
		{"an access control list", "echo a > f", "setfacl -m u:7:r f", "modified f mode 0644 owner 0:0\nblocked acl f\n"},
		{"a capability", "echo a > f", "setcap cap_net_raw+ep f", "blocked capability f\n"},
		{"a capability lost by writing", "echo a > f; setcap cap_net_raw+ep f", "echo b > f", "modified f\nblocked capability f\n"},
		{"an overlay attribute of the user's", "echo a > f", "setfattr -n trusted.overlay.redirect -v x f", "blocked xattr f\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nstest.Require(t, nstest.Root, nstest.Tool("setfattr"), nstest.Tool("setfacl"), nstest.Tool("setcap"))
			l := newLab(t, tt.host)
			l.inView(tt.view)
			want := tt.want
			if tt.name == "an access control list" {
				want = strings.TrimPrefix(want, "modified f mode 0644 owner 0:0\n")
			}
			l.want(want)
		})
	}
}

func TestSocketBlocksUnlessEphemeral(t *testing.T) {
	l := newLab(t, "mkdir __pycache__")
	for _, name := range []string{"s", "__pycache__/s"} {
		s, err := net.Listen("unix", filepath.Join(l.merged, name))
		must(t, err)
		s.(*net.UnixListener).SetUnlinkOnClose(false)
		must(t, s.Close())
	}
	l.want("ephemeral added __pycache__/s\nblocked socket s\n")
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
	l.inView("mkfifo 'a b'")
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
	l.inView("echo z > in/f; echo z > out/f; : >> other/f; mkdir -p out/new/deep; echo z > out/new/deep/f; rm -r gone; mkfifo out/p")
	l.want(`modified in/f
		blocked outside-base gone
		blocked outside-base out/f
		blocked outside-base out/new
		blocked fifo out/p
		blocked outside-base out/p
	`)
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
