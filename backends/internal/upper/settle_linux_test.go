package upper

import (
	"testing"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestSettle(t *testing.T) {
	settle(t, []settled{
		{"modified and added files", "mkdir a; echo x > a/f", "echo y > a/f; echo n > a/n", "echo y > a/f; echo n > a/n", "", ""},
		{"a deleted directory", "mkdir a; echo x > a/f", "rm -r a", "rm -r a", "", ""},
		{"an opaque directory", "mkdir a; echo x > a/f", "rm -r a; mkdir a; echo n > a/n", "rm a/f; echo n > a/n", "", ""},
		{
			"a new directory keeps what was not applied", "true", "mkdir a; echo n > a/n; echo p > a/x.pid", "mkdir a; echo n > a/n",
			"ephemeral added a/x.pid\n", "a a/x.pid",
		},
		{
			"an opaque directory keeps a deletion that was not applied", "mkdir a; echo x > a/f; echo p > a/x.pid",
			"rm -r a; mkdir a; echo n > a/n", "rm a/f; echo n > a/n", "ephemeral deleted a/x.pid\n", "a a/x.pid",
		},
		{"a directory's mode", "mkdir a; echo p > a/x.pid", "chmod 700 a; echo q > a/x.pid", "chmod 700 a", "ephemeral modified a/x.pid\n", "a a/x.pid"},
		{"a file in a directory's place", "mkdir a; echo x > a/f", "rm -r a; echo y > a", "rm -r a; echo y > a", "", ""},
		{"a directory in a file's place", "echo y > a", "rm a; mkdir a; echo x > a/f", "rm a; mkdir a; echo x > a/f", "", ""},
		{"every name of a file", "echo x > f", "ln f g; echo y > f", "ln f g; echo y > f", "", ""},
		{
			"a file of which one name was not applied", "true", "echo x > f; ln f g; ln f x.pid", "echo x > f; ln f g",
			"ephemeral added x.pid\n", "x.pid",
		},
		{"a fifo", "echo x > f", "mkfifo p; rm f; mkfifo f", "mkfifo p; rm f; mkfifo f", "", ""},
		{"a directory that had a fifo", "mkdir d; mkfifo d/p", "rm -r d", "rm -r d", "", ""},
		{"a directory's attributes", "mkdir d; echo x > d/f", "setfattr -n user.k -v v d; setfacl -d -m u:7:r d", "setfattr -n user.k -v v d; setfacl -d -m u:7:r d", "", ""},
		{
			"a directory's attributes, with something left in it", "mkdir d", "setfattr -n user.k -v v d; echo p > d/x.pid", "setfattr -n user.k -v v d",
			"ephemeral added d/x.pid\n", "d d/x.pid",
		},
		{"a label is no reason to stay", "mkdir d; echo x > d/f", "setfattr -n security.selinux -v l d; echo y > d/f", "echo y > d/f", "", ""},
		{"an opaque directory in an opaque one", "mkdir -p a/b; echo x > a/b/f; echo y > a/g", "rm -r a; mkdir -p a/b; echo n > a/b/n", "rm a/g a/b/f; echo n > a/b/n", "", ""},
	})
}

// settled is what was done in the view, what a plan then did to the host, and what
// is left of the layer.
type settled struct{ name, host, view, apply, want, upper string }

func settle(t *testing.T, all []settled) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"), nstest.Tool("setfacl"))
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, tt.host)
			l.inView(tt.view)
			var applied []change.Path
			for _, c := range l.diff().Changes {
				applied = append(applied, c.Path)
			}
			l.unmount()
			l.onHost(tt.apply)
			must(t, Settle(l.env, applied))
			if got := l.upperText(); got != tt.upper {
				t.Errorf("upper holds %q, want %q", got, tt.upper)
			}
			l.mount()
			l.want(tt.want)
		})
	}
}

func TestSettledDirectoryMayBeChangedAgain(t *testing.T) {
	l := newLab(t, "mkdir a; echo p > a/x.pid")
	l.inView("chmod 700 a; echo q > a/x.pid")
	l.want("modified a mode 0700 owner 0:0\nephemeral modified a/x.pid\n")
	l.unmount()
	l.onHost("chmod 700 a")
	must(t, Settle(l.env, l.paths("a")))
	l.mount()
	l.inView("chmod 750 a")
	l.want("modified a mode 0750 owner 0:0\nephemeral modified a/x.pid\n")
}

// A rollback brings back what a commit deleted, and the view may delete it again.
func TestSettledDeletionMayBeMadeAgain(t *testing.T) {
	const made = "mkdir -p a/b; echo x > a/b/f"
	l := newLab(t, made)
	deleted := "deleted a\ndeleted a/b\ndeleted a/b/f\n"
	for _, again := range []string{"rm -r a", "rm -r a; mkdir a; rmdir a"} {
		l.inView(again)
		l.want(deleted)
		l.unmount()
		l.onHost("rm -r a")
		must(t, Settle(l.env, l.paths("a", "a/b", "a/b/f")))
		l.onHost(made)
		l.mount()
	}
	l.inView("rm -r a; mkdir a")
	l.want("deleted a/b\ndeleted a/b/f\n")
}
