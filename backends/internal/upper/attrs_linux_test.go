package upper

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestAttributes(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"), nstest.Tool("setfacl"), nstest.Tool("setcap"))
	const caps = "echo a > f; setcap cap_net_raw+ep f"
	show(t, []example{
		{
			"set on a file, a directory and a link", "echo a > f; mkdir d; ln -s x l",
			"setfattr -n user.k -v v f; setfattr -n user.k -v v d; setfattr -h -n trusted.k -v v l",
			"modified d mode 0755 owner 0:0 +user.k\nmodified f mode 0644 owner 0:0 +user.k\nmodified l -> x +trusted.k\n",
		},
		{"set on the top", "true", "setfattr -n user.k -v v .", "modified . mode 0755 owner 0:0 +user.k\n"},
		{"an empty value is a value", "echo a > f", "setfattr -n user.k f", "modified f mode 0644 owner 0:0 +user.k\n"},
		{"another value", "echo a > f; setfattr -n user.k -v v f", "setfattr -n user.k -v w f", "modified f mode 0644 owner 0:0 +user.k\n"},
		{"an equal one is none", "echo a > f; setfattr -n user.k -v v f", "chmod 600 f", "modified f mode 0600 owner 0:0\n"},
		{"removed", "echo a > f; setfattr -n user.k -v v f", "setfattr -x user.k f", "modified f mode 0644 owner 0:0 -user.k\n"},
		{"lost with the file", "echo a > f; setfattr -n user.k -v v f", "cp f g; mv g f", "modified f mode 0644 owner 0:0 -user.k\n"},
		{"of a new file", "true", "echo a > f; setfattr -n user.k -v v f", "added f +user.k\n"},
		{"on a fifo", "mkfifo p", "setfattr -n trusted.k -v v p", "modified p mode 0644 owner 0:0 +trusted.k\n"},
		{"a label is the place's", "echo a > f", "setfattr -n security.selinux -v x f; echo b > g; setfattr -n security.selinux -v y g", "added g\n"},

		{"an access control list", "echo a > f", "setfacl -m u:7:r,g:8:rw f", "modified f mode 0664 owner 0:0 +system.posix_acl_access\n"},
		{
			"its mask moves with the mode", "echo a > f; setfacl -m u:7:rw f", "chmod 644 f",
			"modified f mode 0644 owner 0:0 +system.posix_acl_access\n",
		},
		{"removed", "echo a > f; setfacl -m u:7:r f", "setfacl -b f", "modified f mode 0644 owner 0:0 -system.posix_acl_access\n"},
		{"one that says no more than the mode", "echo a > f", "setfacl -m u::rw,g::r,o::r f", ""},
		{
			"a default one, and who inherits it whatever the umask", "mkdir d", "setfacl -d -m u:7:rwx d; umask 077; echo a > d/f; mkdir d/e",
			"modified d mode 0755 owner 0:0 +system.posix_acl_default\n" +
				"added d/e/ +system.posix_acl_access +system.posix_acl_default\nadded d/f +system.posix_acl_access\n",
		},
		{"a copy of what inherited", "mkdir d; setfacl -d -m u:7:rwx d; echo a > d/f; echo b > d/g; setfacl -b d/g", "touch d/f d/g; : >> d/g", ""},

		{"a capability", "echo a > f", "setcap cap_net_raw+ep f", "modified f mode 0644 owner 0:0 +security.capability\n"},
		{"lost by writing", caps, "echo b > f", "modified f -security.capability\n"},
		{"lost by a change of owner", caps, "chown 7 f", "modified f mode 0644 owner 7:0 -security.capability\n"},
		{"kept by a change of mode", caps, "chmod 755 f", "modified f mode 0755 owner 0:0\n"},
		{"set again", caps, "echo b > f; echo a > f; setcap cap_net_raw+ep f", ""},
		{
			"a copy of everything at once", "echo a > f; setfattr -n user.k -v v f; setfattr -n trusted.k -v w f; setfacl -m u:7:r f; setcap cap_net_raw+ep f",
			": >> f; touch f", "",
		},
	})
}

func TestConflictNamesAttributes(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"))
	l := newLab(t, "echo a > f; setfattr -n user.k -v v f")
	l.inView("echo b > f")
	l.record()
	l.onHost("setfattr -n user.k -v other f")
	d := l.diff()
	if len(d.Blockers) != 1 || !strings.HasSuffix(d.Blockers[0].Reason, "; attributes differ: user.k") {
		t.Errorf("blockers %+v, want a conflict about user.k", d.Blockers)
	}
}

// An attribute that is set while the file is read belongs to what was read last.
func TestAttributeSetWhileTheFileIsRead(t *testing.T) {
	l := newLab(t, "true")
	l.inView("echo a > f")
	set := false
	d, err := Diff(l.env, DiffOptions{Base: l.base, TView: l.tview, Stop: func() error {
		if set {
			return nil
		}
		set = true
		return unix.Setxattr(l.merged+"/f", "user.k", []byte("v"), 0)
	}})
	must(t, err)
	if got := l.text(d); got != "added f +user.k\n" || !set {
		t.Errorf("difference %q", got)
	}
}

// ramfs holds no attributes at all, and a copy-up to it leaves them out.
func TestAttributesThatALayerCannotHoldAreNoDifference(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"), nstest.Tool("setfacl"))
	l := newLab(t, "echo a > f; mkdir d; for x in f d; do setfattr -n user.k -v v $x; setfattr -n trusted.k -v v $x; setfacl -m u:7:r $x; done; chmod 640 f")
	l.unmount()
	dir := l.env + "/layers/root"
	src, err := os.ReadFile(dir + "/source.json")
	must(t, err)
	must(t, unix.Mount("ramfs", dir, "ramfs", 0, ""))
	must(t, os.WriteFile(dir+"/source.json", src, 0o600))
	must(t, os.Mkdir(dir+"/work", 0o755))
	must(t, os.Mkdir(dir+"/upper", 0o755))
	l.mount()
	l.inView(": >> f; touch f d")
	if _, err := os.Lstat(dir + "/upper/f"); err != nil {
		t.Fatal(err)
	}
	l.want("")
	l.inView("echo b > f; echo n > n")
	l.want("modified f\nadded n\n")
	l.unmount()
	must(t, RemoveAll(l.env))
	l.mount()
	l.want("")
}
