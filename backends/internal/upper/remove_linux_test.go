package upper

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func (l *lab) paths(names ...string) []change.Path {
	var ps []change.Path
	for _, n := range names {
		ps = append(ps, change.Path(filepath.Join(l.host, n)))
	}
	return ps
}

// upperText lists the upper, to see that nothing stays behind.
func (l *lab) upperText() string {
	l.t.Helper()
	var names []string
	root := l.env + "/layers/root/upper"
	must(l.t, filepath.WalkDir(root, func(p string, _ os.DirEntry, err error) error {
		if p != root {
			names = append(names, strings.TrimPrefix(p, root+"/"))
		}
		return err
	}))
	return strings.Join(names, " ")
}

func TestRemove(t *testing.T) {
	for _, tt := range []struct {
		name, host, view string
		reset            []string
		want, upper      string
	}{
		{"a file, with its copied-up parents", "mkdir -p a/b; echo x > a/b/f", "echo y > a/b/f", []string{"a/b/f"}, "", ""},
		{"one of two", "mkdir a; echo x > a/f; echo x > a/g", "echo y > a/f; echo y > a/g", []string{"a/f"}, "modified a/g\n", "a a/g"},
		{"a deletion", "echo x > f", "rm f", []string{"f"}, "", ""},
		{"a tree", "mkdir -p a/b; echo x > a/b/f", "rm a/b/f; echo n > a/b/n; chmod 700 a", []string{"a"}, "", ""},
		{"a parent that was changed itself stays", "mkdir a; echo x > a/f", "chmod 700 a; echo y > a/f", []string{"a/f"}, "modified a mode 0700 owner 0:0\n", "a"},
		{"a new parent stays", "true", "mkdir a; echo y > a/f", []string{"a/f"}, "added a/\n", "a"},
		{
			"one name below a deleted directory", "mkdir -p a/b; echo x > a/f; echo x > a/b/g; echo x > a/b/h", "rm -r a",
			[]string{"a/b/g"},
			"deleted a/b/h\ndeleted a/f\n", "a a/b a/b/h a/f",
		},
		{
			"one name that an opaque directory hides", "mkdir a; echo x > a/f; echo x > a/g", "rm -r a; mkdir a; echo n > a/n",
			[]string{"a/f"},
			"deleted a/g\nadded a/n\n", "a a/g a/n",
		},
		{
			"one name of an opaque directory's own", "mkdir a; echo x > a/f; echo x > a/g", "rm -r a; mkdir a; echo n > a/f",
			[]string{"a/f"},
			"deleted a/g\n", "a a/g",
		},
		{"a file in a directory's place", "mkdir a; echo x > a/f", "rm -r a; echo y > a", []string{"a"}, "", ""},
		{"what was never changed", "echo x > f; echo x > g", "echo y > f", []string{"g", "no/such"}, "modified f\n", "f"},
		{"the whole base", "mkdir a; echo x > a/f", "rm -r a; echo y > g", []string{"."}, "", ""},
		{"a parent and its child", "mkdir a; echo x > a/f", "echo y > a/f", []string{"a/f", "a"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, tt.host)
			l.inView(tt.view)
			l.record()
			l.unmount()
			must(t, Remove(l.env, l.paths(tt.reset...)))
			if got := l.upperText(); got != tt.upper {
				t.Errorf("upper holds %q, want %q", got, tt.upper)
			}
			l.mount()
			l.want(tt.want)
			for _, name := range tt.reset { // what was reset is the host's again
				l.onHost("if [ -f " + name + " ]; then cmp " + name + " ../merged/" + name + "; fi")
			}
		})
	}
}

// A renamed file and the host's file under its old name are two files again once
// the old name is back.
func TestRemoveSeparatesARenamedFileFromItsOrigin(t *testing.T) {
	l := newLab(t, "echo host > config")
	l.inView("mv config config.bak; echo mine > config.bak")
	l.record()
	l.unmount()
	must(t, Remove(l.env, l.paths("config")))
	l.mount()
	l.inView("cat config.bak > /dev/null; [ \"$(cat config)\" = host ]; echo edited > config; [ \"$(cat config.bak)\" = mine ]")
	l.want("modified config\nadded config.bak\n")
}

func TestRemoveBelowAReplacementSaysWhatToReset(t *testing.T) {
	l := newLab(t, "mkdir a; echo x > a/f")
	l.inView("rm -r a; echo y > a")
	l.unmount()
	if err := Remove(l.env, l.paths("a/f")); err == nil || !strings.Contains(err.Error(), "reset that one") {
		t.Errorf("error %v, want one that says what to reset", err)
	}
}

func TestRemoveForgetsOriginAndStaging(t *testing.T) {
	l := newLab(t, "mkdir d; echo x > d/x.pid")
	must(t, MarkStaged(l.env, l.paths("d/x.pid")[0]))
	l.inView("echo y > d/x.pid")
	l.want("modified d/x.pid\n")
	l.unmount()
	must(t, Remove(l.env, l.paths("d")))
	l.onHost("echo h > d/x.pid")
	l.mount()
	l.inView("echo z > d/x.pid")
	l.want("ephemeral modified d/x.pid\n")
}

func TestRemoveAllLeavesAPristineView(t *testing.T) {
	l := newLab(t, "chmod 711 .; mkdir a; echo x > a/f; mkdir b")
	l.inView("chmod 700 .; rm -r a; echo y > b/g; ln -s q l; mkfifo p")
	l.record()
	l.unmount()
	must(t, RemoveAll(l.env))
	if got := l.upperText(); got != "" {
		t.Errorf("upper holds %q", got)
	}
	l.mount()
	l.want("")
	st, err := os.Stat(l.merged)
	must(t, err)
	if st.Mode().Perm() != 0o711 {
		t.Errorf("top has mode %o, want 711", st.Mode().Perm())
	}
}

func TestRemoveOfEveryKind(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfattr"), nstest.Tool("setfacl"))
	for _, tt := range []struct{ name, host, view, reset, want string }{
		{"one name of a file", "echo a > f", "ln f g; ln f h", "g", "modified f mode 0644 owner 0:0\nadded h = f\n"},
		{"the name that was copied up", "echo a > f", "ln f g; ln f h", "f", "added g\nadded h = g\n"},
		{"all names but the copied one", "echo a > f", "ln f g", "g", ""},
		{"a name of a new file", "true", "echo a > f; ln f g", "f", "added g\n"},
		{"a name of a file joined again", "echo a > f; ln f g", "echo b > f; ln -f f g", "f", "modified g\n"},
		{"a fifo", "echo a > f", "rm f; mkfifo f; mkfifo p", "f", "added p|\n"},
		{"a directory of which only attributes differ", "mkdir d; echo a > d/f", "setfattr -n user.k -v v d; setfacl -d -m u:7:r d", "d", ""},
		{"below one, which stays", "mkdir d; echo a > d/f", "setfattr -n user.k -v v d; echo b > d/f", "d/f", "modified d mode 0755 owner 0:0 +user.k\n"},
		{"of an opaque directory, an old name", "mkdir d; echo a > d/f; echo b > d/g", "rm -r d; mkdir d; echo n > d/n", "d/f", "deleted d/g\nadded d/n\n"},
		{"of an opaque directory, a new name", "mkdir d; echo a > d/f", "rm -r d; mkdir d; echo n > d/n; echo m > d/m", "d/n", "deleted d/f\nadded d/m\n"},
		{
			"below an opaque directory", "mkdir -p d/e; for f in d/a d/e/a d/e/b; do echo $f > $f; done",
			"rm -r d; mkdir -p d/e; echo n > d/e/n", "d/e/a", "deleted d/a\ndeleted d/e/b\nadded d/e/n\n",
		},
		{
			"beside a directory in an opaque one", "mkdir -p d/e; for f in d/a d/e/a d/e/b; do echo $f > $f; done",
			"rm -r d; mkdir -p d/e; echo n > d/e/n", "d/a", "deleted d/e/a\ndeleted d/e/b\nadded d/e/n\n",
		},
		{
			"what comes back has its attributes", "mkdir -p d/e; setfattr -n user.k -v v d/e; setfacl -d -m u:7:r d; echo a > d/e/f; echo b > d/e/g",
			"rm -r d", "d/e/f", "deleted d/e/g\n",
		},
		{"strange names", "true", `printf x > "$(printf 'a\nb')"; printf x > ./-n; printf x > 'trail '`, "a\nb", "added -n\nadded trail \n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, tt.host)
			l.inView(tt.view)
			l.record()
			l.unmount()
			must(t, Remove(l.env, l.paths(tt.reset)))
			l.mount()
			l.want(tt.want)
		})
	}
}

// The names of one file share the mark of what it was copied from. As long as
// one of them stands where that was, the host's name is not shown beside them.
func TestRemoveKeepsTheMarkOfAFileInPlace(t *testing.T) {
	l := newLab(t, "echo host > f; echo x > other")
	l.inView("ln f g; echo y > other")
	l.record()
	l.unmount()
	must(t, Remove(l.env, l.paths("other")))
	if _, err := unix.Lgetxattr(l.env+"/layers/root/upper/f", originAttr, nil); err != nil {
		t.Errorf("the mark is gone: %v", err)
	}
	l.mount()
	l.inView("echo edited > g; [ \"$(cat f)\" = edited ]; [ $(stat -c %h f) = 2 ]")

	l.unmount()
	must(t, Remove(l.env, l.paths("f")))
	l.mount()
	l.inView("[ \"$(cat f)\" = host ]; [ \"$(cat g)\" = edited ]; echo again > f; [ \"$(cat g)\" = edited ]")
	l.want("modified f\nadded g\n")
}

// A mount below the upper, or a directory handed in by a symlink, must survive.
func TestRemoveStaysInTheLayer(t *testing.T) {
	l := newLab(t, "mkdir a")
	outside := t.TempDir()
	must(t, os.WriteFile(outside+"/precious", nil, 0o600))
	l.inView("mkdir a/m; ln -s " + outside + " a/l")
	l.unmount()
	must(t, unix.Mount(outside, l.env+"/layers/root/upper/a/m", "", unix.MS_BIND, ""))
	if err := Remove(l.env, l.paths("a")); err == nil {
		t.Error("removing a mount point succeeded")
	}
	if _, err := os.Stat(outside + "/precious"); err != nil {
		t.Errorf("what lies outside is lost: %v", err)
	}
}

func TestOpen(t *testing.T) {
	l := newLab(t, "mkdir d; echo a > d/f; echo b > g; echo c > h")
	l.inView("echo v > d/f; rm g; mkfifo g; ln -s /etc/passwd l; ln -s d e")
	f, err := Open(l.env, l.paths("d/f")[0])
	must(t, err)
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "v\n" {
		t.Errorf("content %q, %v", b, err)
	}
	for _, name := range []string{"g", "h", "l", "d", "e/f", "../host/d/f", "no"} {
		if f, err := Open(l.env, change.Path(l.host+"/"+name)); err == nil {
			f.Close()
			t.Errorf("%s was opened", name)
		}
	}
}
