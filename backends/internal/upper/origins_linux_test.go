package upper

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

func (l *lab) record() {
	l.t.Helper()
	must(l.t, Record(l.env, Window{TView: l.tview}))
}

// Each row edits in the view and on the host, in the order given, without anybody
// looking in between; the second column of wants is when a record was made after
// the view's part, as every exec does.
func TestHostEdits(t *testing.T) {
	for _, tt := range []struct{ name, host, view, edit, unseen, recorded string }{
		{
			"edited in place", "echo a > f", "echo v >> f", "echo h >> f",
			"modified f\nblocked origin-uncertain f\n", "modified f\nblocked conflict f\n",
		},
		{
			"replaced by rename", "echo a > f", "echo v >> f", "echo h > n; mv n f",
			"modified f\nblocked origin-uncertain f\n", "modified f\nblocked conflict f\n",
		},
		{
			"deleted", "echo a > f", "echo v >> f", "rm f",
			"added f\nblocked origin-uncertain f\n", "modified f\nblocked conflict f\n",
		},
		{
			"created under the same name", "true", "echo v > f", "echo h > f",
			"modified f\nblocked origin-uncertain f\n", "added f\nblocked conflict f\n",
		},
		{
			"created with the same content is no change", "true", "echo v > f", "echo v > f", "", "",
		},
		{
			"touched, or replaced by its equal, is no conflict", "echo a > f", "echo v >> f", "cp f n; mv n f",
			"modified f\nblocked origin-uncertain f\n", "modified f\n",
		},
		{
			"edited where the view only opened for writing", "echo a > f", ": >> f", "echo h >> f",
			"modified f\nblocked origin-uncertain f\n", "",
		},
		{
			"mode changed where the view edited", "echo a > f", "echo v >> f", "chmod 600 f",
			"modified f\nblocked origin-uncertain f\n", "modified f\nblocked conflict f\n",
		},
		{
			"deleted in the view, edited on the host", "echo a > f", "rm f", "echo h >> f",
			"deleted f\nblocked origin-uncertain f\n", "deleted f\nblocked conflict f\n",
		},
		{"deleted in both", "echo a > f", "rm f", "rm f", "", ""},
		{
			"added to a directory that the view deleted", "mkdir d; echo a > d/f", "rm -r d", "echo h > d/g",
			"deleted d\ndeleted d/f\ndeleted d/g\nblocked origin-uncertain d\nblocked origin-uncertain d/g\n",
			"deleted d\ndeleted d/f\ndeleted d/g\nblocked origin-uncertain d/g\n",
		},
		{
			"directory swapped for another", "mkdir d n; echo a > d/f; echo h > n/f; touch -d 2001-01-01 n/f", "echo v >> d/f", "mv d o; mv n d",
			"modified d/f\nblocked origin-uncertain d/f\n", "modified d/f\nblocked origin-uncertain d/f\n",
		},
		{
			"directory turned into a symlink", "mkdir d x; echo a > d/f", "echo v >> d/f", "mv d o; ln -s x d",
			"replaced d/\nadded d/f\nblocked origin-uncertain d\nblocked origin-uncertain d/f\n",
			"modified d mode 0755 owner 0:0\nmodified d/f\nblocked conflict d\nblocked origin-uncertain d/f\n",
		},
		{
			"directory deleted under what the view added", "mkdir d", "echo n > d/n", "rmdir d",
			"added d/\nadded d/n\nblocked origin-uncertain d\n", "modified d mode 0755 owner 0:0\nadded d/n\nblocked conflict d\n",
		},
		{
			"other names come and go: one that only the view has may have been among them", "mkdir d; echo a > d/f", "echo v >> d/f; echo n > d/n",
			"echo h > d/h; rm d/h; echo i > d/i", "added d/n\nmodified d/f\nblocked origin-uncertain d/n\n", "added d/n\nmodified d/f\n",
		},
		{
			"renamed in the view while other names come", "echo a > f", "mv f g", "echo h > other",
			"deleted f\nadded g\nblocked origin-uncertain g\n", "deleted f\nadded g\n",
		},
		{"renamed in the view while other directories change", "mkdir d; echo a > d/f", "mv d/f d/g", "echo h > other", "deleted d/f\nadded d/g\n", "deleted d/f\nadded d/g\n"},
		{
			"replaced in the view, deleted on the host", "mkdir d; echo a > d/f", "echo v > d/n; mv d/n d/f", "rm d/f",
			"added d/f\nblocked origin-uncertain d/f\n", "modified d/f\nblocked conflict d/f\n",
		},
		{
			"moved to another name on the host", "mkdir d; echo a > d/f", "echo v >> d/f", "mv d/f d/g",
			"added d/f\nblocked origin-uncertain d/f\n", "modified d/f\nblocked conflict d/f\n",
		},
		{
			"one of two names edited", "echo a > f; ln f g", "echo v >> f", "echo h >> g",
			"modified f\nblocked origin-uncertain f\n", "modified f\nblocked conflict f\n",
		},
		{
			"another name given to it is no conflict", "echo a > f", "echo v >> f", "ln f g",
			"modified f\nblocked origin-uncertain f\n", "modified f\n",
		},
		{
			"touched is no conflict", "echo a > f", "echo v >> f", "touch -d 2001-01-01 f",
			"modified f\nblocked origin-uncertain f\n", "modified f\n",
		},
		{
			"changed and changed back is no conflict", "echo a > f", "echo v >> f", "echo h > f; echo a > f",
			"modified f\nblocked origin-uncertain f\n", "modified f\n",
		},
		{
			"given an attribute", "echo a > f", "echo v >> f", "setfattr -n user.h -v 1 f",
			"modified f -user.h\nblocked origin-uncertain f\n", "modified f\nblocked conflict f\n",
		},
		{
			"given an access list", "echo a > f", "echo v >> f", "setfacl -m u:1:r f",
			"modified f -system.posix_acl_access\nblocked origin-uncertain f\n", "modified f\nblocked conflict f\n",
		},
		{
			"deleted in the view, deleted and made again on the host", "echo a > f", "rm f", "rm f; echo b > f",
			"deleted f\nblocked origin-uncertain f\n", "deleted f\nblocked conflict f\n",
		},
		{
			"made anew in the view, deleted on the host", "mkdir d; echo a > d/f", "rm -r d; mkdir d; echo v > d/n", "rm -r d",
			"added d/\nadded d/n\nblocked origin-uncertain d\n", "modified d mode 0755 owner 0:0\nadded d/n\nblocked conflict d\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, recorded := range []bool{false, true} {
				l := newLab(t, tt.host)
				l.inView(tt.view)
				want := tt.unseen
				if recorded {
					l.record()
					want = tt.recorded
				}
				l.onHost(tt.edit)
				if got := l.text(l.diff()); !sameLines(got, want) {
					t.Errorf("recorded=%v: difference:\n%s\nwant:\n%s", recorded, got, want)
				}
			}
		})
	}
}

// The view goes on serving an inode that the host has replaced; the base must
// not be what the host has when somebody looks.
func TestStaleLowerIsUncertain(t *testing.T) {
	l := newLab(t, "echo v1 > a")
	l.inView("cat a")
	l.onHost("echo v2 > n; mv n a")
	l.inView("echo app >> a")
	if b, _ := os.ReadFile(l.merged + "/a"); string(b) != "v1\napp\n" {
		t.Logf("this kernel shows %q", b)
	}
	l.want("modified a\nblocked origin-uncertain a\n")
}

func TestRebuildWithoutRecordIsUncertain(t *testing.T) {
	l := newLab(t, "echo a > f; echo b > g")
	l.inView("echo v > f")
	l.onHost("echo h > f")
	l.unmount()
	l.mount() // the host's edit is older than the new view: its time says nothing
	l.inView("echo v > g")
	l.want("modified f\nmodified g\nblocked origin-uncertain f\n")
}

func TestRecordBeforeRebuildKeepsTheBase(t *testing.T) {
	l := newLab(t, "echo a > f; echo b > g")
	l.inView("echo v > f; echo v > g")
	l.record()
	l.unmount()
	l.onHost("echo h > f")
	l.mount()
	l.want("modified f\nmodified g\nblocked conflict f\n")
}

// A deleted file's bytes are read by the first comparison. Taking a trial back
// then moves the very same file away and back again.
func TestOriginOfADeletionSurvivesARename(t *testing.T) {
	l := newLab(t, "echo a > f")
	l.inView("rm f")
	l.record()
	l.want("deleted f\n")
	l.onHost("mv f aside; mv aside f")
	l.want("deleted f\n")
	l.onHost("echo b > f")
	l.want("deleted f\nblocked conflict f\n")
}

func TestClockStepMakesNewOriginsUncertain(t *testing.T) {
	l := newLab(t, "echo a > f; echo b > g")
	l.inView("echo v > f")
	l.record()
	l.inView("echo v > g; echo n > new")
	must(t, Record(l.env, Window{TView: l.tview, Stepped: true}))
	l.want("modified f\nmodified g\nadded new\nblocked origin-uncertain g\nblocked origin-uncertain new\n")
}

func TestRecordForgetsWhatTheUpperLost(t *testing.T) {
	l := newLab(t, "true")
	l.inView("echo v > f")
	l.record()
	l.inView("rm f")
	l.record()
	l.onHost("echo h > f")
	l.unmount()
	l.mount()
	l.inView("echo v >> f")
	l.want("modified f\n")
}

func TestOriginLogSurvivesATornTail(t *testing.T) {
	l := newLab(t, "echo a > f; echo b > g")
	l.inView("echo v > f")
	l.record()
	name := l.env + "/origins.log"
	whole, err := os.ReadFile(name)
	must(t, err)
	l.inView("echo v > g")
	l.record()
	both, err := os.ReadFile(name)
	must(t, err)
	l.onHost("echo h > f")
	for cut := len(whole); cut < len(both); cut++ {
		must(t, os.WriteFile(name, both[:cut], 0o600))
		l.want("modified f\nmodified g\nblocked conflict f\n")
		after, err := os.ReadFile(name)
		must(t, err)
		if !strings.HasPrefix(string(after), string(whole)) {
			t.Fatalf("cut at %d: the intact part changed", cut)
		}
	}
}

func TestDamagedOriginLogIsRefused(t *testing.T) {
	l := newLab(t, "echo a > f; echo b > g")
	l.inView("echo v > f")
	l.record()
	l.inView("echo v > g")
	l.record()
	name := l.env + "/origins.log"
	b, err := os.ReadFile(name)
	must(t, err)
	b[20] ^= 1
	must(t, os.WriteFile(name, b, 0o600))
	if _, err := Diff(l.env, DiffOptions{Base: l.base, TView: l.tview}); err == nil || !strings.Contains(err.Error(), "line 1: checksum") {
		t.Errorf("error %v, want one that names line 1 and its checksum", err)
	}
}

func TestForgetDropsTheSubtree(t *testing.T) {
	l := newLab(t, "mkdir d; echo a > d/f; echo b > g")
	l.inView("echo v > d/f; echo v > g")
	l.record()
	must(t, Forget(l.env, []change.Path{join(change.Path(l.host), "d")}))
	log, err := openOrigins(l.env)
	must(t, err)
	defer log.close()
	for p := range log.known {
		if strings.HasPrefix(string(p), l.host+"/d") {
			t.Errorf("%s is still known", p)
		}
	}
	if _, ok := log.known[join(change.Path(l.host), "g")]; !ok {
		t.Error("g was forgotten too")
	}
}

// A wrong handle must not be taken for a living object.
func TestHandleAlive(t *testing.T) {
	l := newLab(t, "echo a > f")
	dir, err := unix.Open(l.host, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(dir)
	n, err := lookup(dir, "f")
	must(t, err)
	h, ok := handleOf(n)
	if !ok {
		t.Fatal("the filesystem gives no handles")
	}
	open, err := os.Open(l.host + "/f") // keeps the inode in memory
	must(t, err)
	defer open.Close()
	if !h.alive(dir) {
		t.Error("a file with a name is not alive")
	}
	l.onHost("rm f")
	if h.alive(dir) {
		t.Error("a deleted file is alive")
	}
}

func sameLines(a, b string) bool {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	return strings.Join(sorted(x), "\n") == strings.Join(sorted(y), "\n")
}
