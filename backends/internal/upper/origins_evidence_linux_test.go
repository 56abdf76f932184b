package upper

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// command dates the start of a command: after everything that the host did.
func (l *lab) command() int64 {
	l.t.Helper()
	first := l.stamp()
	for deadline := time.Now().Add(5 * time.Second); ; {
		if start := l.stamp() - 2e6; start > first {
			return start
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the clock of the filesystem stands still")
		}
	}
}

// A first command only reads; the host replaces a, rewrites b in place and
// touches neither c, d nor e, of which e has two names; a later command in the
// same view writes to all. The view goes on serving the a that is gone.
func TestConflictExperiment(t *testing.T) {
	for _, tt := range []struct {
		name   string
		daemon bool // the first command lives on
		want   string
	}{
		{"nothing that read the old ones lives", false, "blocked origin-uncertain a\nblocked origin-uncertain g\n"},
		{"a daemon may have read the old ones", true, "blocked origin-uncertain a\nblocked origin-uncertain b\nblocked origin-uncertain g\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, "for f in a b c d e g; do echo v1 > $f; done; ln e e2")
			l.inView("cat a b c d e g")
			first := l.tview
			l.onHost("echo v2 > n; mv n a; echo v2 > b; echo v2 > g")
			last := l.command()
			l.inView("for f in a b c e; do echo app >> $f; done; echo new > n; mv n d; rm g")
			for _, f := range []string{"a", "b", "c", "e"} {
				n, err := os.ReadFile(l.env + "/layers/root/upper/" + f)
				must(t, err)
				if want := map[string]string{"b": "v2\napp\n"}[f]; want != "" && string(n) != want || want == "" && string(n) != "v1\napp\n" {
					t.Errorf("%s was copied up as %q", f, n)
				}
			}
			w := Window{TView: l.tview, TExec: last}
			if tt.daemon {
				w.TExec = first
			}
			must(t, Record(l.env, w))
			l.want("modified a\nmodified b\nmodified c\nmodified d\nmodified e\ndeleted g\n" + tt.want)
		})
	}
}

// The handle is evidence for one object in one place, and only since the command
// that copied it started.
func TestHandleIsNoEvidence(t *testing.T) {
	for _, tt := range []struct{ name, host, view, edit, later, want string }{
		{"for another file moved over it in the view", "mkdir d; echo a > d/f; echo b > d/g", "cat d/f d/g", "echo h > d/f", "mv d/g d/f", "modified d/f\ndeleted d/g\nblocked origin-uncertain d/f\n"},
		{"for what the host changed since", "echo a > f", "cat f", "true", "echo v >> f", "modified f\nblocked origin-uncertain f\n"},
		{"below a directory that was replaced", "mkdir d n; echo a > d/f", "ls d; cat d/f", "ln d/f n/f; rm d/f; mv d o; mv n d", "echo v >> d/f", "modified d/f\nblocked origin-uncertain d/f\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, tt.host)
			l.inView(tt.view)
			l.onHost(tt.edit)
			last := l.command()
			l.inView(tt.later)
			if tt.edit == "true" {
				l.onHost("echo h >> f")
			}
			must(t, Record(l.env, Window{TView: l.tview, TExec: last}))
			l.want(tt.want)
		})
	}
}

func TestEntryOfAnEarlierCommandIsUncertain(t *testing.T) {
	l := newLab(t, "echo a > f")
	l.inView("cat f")
	l.onHost("echo h > f")
	l.inView("echo v >> f")
	must(t, Record(l.env, Window{TView: l.tview, TExec: l.command()}))
	l.want("modified f\nblocked origin-uncertain f\n")
}

// With 128 byte inodes ext4 keeps whole seconds: what the host writes just after
// the view was mounted looks older than the view.
func TestWholeSecondsProveNothing(t *testing.T) {
	l := newLabOn(t, "echo a > f; echo b > old", loopfs.Options{Mkfs: []string{"-I", "128"}})
	l.unmount()
	for within := int64(0); within < 2e8 || within > 7e8; within = l.stamp() % 1e9 { // not about to be the next second
	}
	l.mount()
	l.inView("echo v >> f")
	l.onHost("echo h > f")
	var st unix.Stat_t
	must(t, unix.Stat(l.host+"/f", &st))
	if st.Ctim.Nsec != 0 || st.Ctim.Nano() >= l.tview {
		t.Fatalf("changed at %d, in a view of %d: nothing was cut", st.Ctim.Nano(), l.tview)
	}
	l.want("modified f\nblocked origin-uncertain f\n")
}

// A file whose change time lies ahead, as after the clock was wrong for a while,
// never looks older than a view. The reason says what gives it another.
func TestChangeTimeInTheFuture(t *testing.T) {
	nstest.Require(t, nstest.Tool("debugfs"))
	options := loopfs.Options{}
	nstest.NewMount(t, nstest.Overlay)
	image := loopfs.Image(t, loopfs.Ext4, 0, options)
	dir := loopfs.Mount(t, loopfs.Ext4, image, options)
	must(t, os.WriteFile(dir+"/f", []byte("a\n"), 0o644))
	must(t, unix.Unmount(dir, 0))
	out, err := exec.Command("debugfs", "-w", "-R", "set_inode_field f ctime 20380101000000", image).CombinedOutput()
	if err != nil {
		t.Fatalf("debugfs: %v\n%s", err, out)
	}
	l := labAt(t, loopfs.Mount(t, loopfs.Ext4, image, options), "true")
	l.inView("echo v >> f")
	l.want("modified f\nblocked origin-uncertain f\n")
	if b := l.diff().Blockers[0]; !strings.Contains(b.Reason, "in the future; touch it on the host") {
		t.Errorf("the reason is %q", b.Reason)
	}
	l.unmount()
	must(t, RemoveAll(l.env))
	l.onHost("touch f")
	l.mount()
	l.inView("echo v >> f")
	l.want("modified f\n")
}

// Change times of a server, or of a FUSE daemon, say nothing about our clock.
func TestForeignClockIsUncertain(t *testing.T) {
	for _, fs := range []string{"nfs4", "fuse.sshfs", "9p", "something-new"} {
		t.Run(fs, func(t *testing.T) {
			l := newLab(t, "echo a > f; echo b > g")
			src, err := json.Marshal(Source{Point: l.host, FS: fs})
			must(t, err)
			must(t, os.WriteFile(l.env+"/layers/root/source.json", src, 0o600))
			l.inView("echo v >> f; rm g; echo n > h")
			l.want("modified f\ndeleted g\nadded h\nblocked origin-uncertain f\nblocked origin-uncertain g\nblocked origin-uncertain h\n")
			for _, b := range l.diff().Blockers {
				if !strings.Contains(b.Reason, fs) {
					t.Errorf("the reason %q does not name the filesystem", b.Reason)
				}
			}
		})
	}
}
