package linuxns

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// A staged copy is the host's file with all it has, and no change; staged content
// takes nothing away from the file but its content.
func TestStageKeepsWhatAFileHas(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setcap"), nstest.Tool("setfacl"), nstest.Tool("setfattr"))
	candidate := filepath.Join(t.TempDir(), "candidate")
	write(t, candidate, "candidate\n")
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			dir := base(t)
			inHost(t, dir, everything)
			e := newEnv(t, func(s *backends.Spec) { s.Base, s.Mode = dir, mode })
			for _, name := range []string{"cap", "acl", "user", "all", "nsroot", "setuid", "sparse"} {
				if err := e.stage(dir+"/"+name, ""); err != nil {
					t.Fatal(err)
				}
			}
			if d := differenceText(t, e, dir); d != "" {
				t.Errorf("a copy differs:\n%s", d)
			}
			// The kernel copies up by the megabyte, and leaves out whole ones only.
			if got := blocks(t, e.upper(dir+"/sparse")); got > 1<<20 {
				t.Errorf("the copy of a sparse file of 8 MiB takes %d bytes", got)
			}
			for _, name := range []string{"cap", "acl", "user", "all", "nsroot", "setuid"} {
				if err := e.stage(dir+"/"+name, candidate); err != nil {
					t.Fatal(err)
				}
			}
			d, err := e.view().Changes(t.Context())
			if err != nil || len(d.Changes) != 6 {
				t.Fatalf("changes %+v, %v", d.Changes, err)
			}
			for _, c := range d.Changes {
				old := *c.Old
				old.SHA256 = c.New.SHA256
				if !old.Same(c.New) {
					t.Errorf("%s: more than the content differs: %+v, was %+v", c.Path, *c.New, *c.Old)
				}
			}
		})
	}
}

// What one view changed, staged entry by entry into another, is the same plan.
func TestStageMakesEveryEntryAgain(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setcap"), nstest.Tool("setfacl"), nstest.Tool("setfattr"))
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			dir := base(t)
			inHost(t, dir, everything)
			var envs [2]*env
			for i := range envs {
				envs[i] = newEnv(t, func(s *backends.Spec) { s.Base, s.Mode = dir, mode })
			}
			envs[0].must("sh", "-euc", "umask 022; cd "+dir+edits)
			want, err := envs[0].view().Changes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range want.Changes {
				cand := backends.Candidate{Delete: c.New == nil, Like: c.New}
				if c.New != nil && c.New.Type == change.Regular && c.New.Link == "" {
					if cand.From, err = envs[0].view().Content(t.Context(), c.Path); err != nil {
						t.Fatal(err)
					}
				}
				err := envs[1].view().Stage(t.Context(), c.Path, cand)
				if cand.From != nil {
					cand.From.Close()
				}
				if err != nil {
					t.Fatalf("%s: %v", c.Path, err)
				}
			}
			got, err := envs[1].view().Changes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range slices.Concat(want.Changes, got.Changes) {
				if c.New != nil && c.New.Type == change.Directory {
					c.New.MTime = 0 // what was staged below it came later
				}
			}
			if diff := cmp.Diff(want.Changes, got.Changes, cmpopts.IgnoreFields(change.Entry{}, "Allocated")); diff != "" || len(got.Blockers) > 0 {
				t.Errorf("changes (-made +staged):\n%s\nblockers %+v", diff, got.Blockers)
			}
		})
	}
}

func TestStageKeepsHoles(t *testing.T) {
	dir := base(t)
	write(t, dir+"/old", strings.Repeat("x", 3<<20))
	candidate := filepath.Join(t.TempDir(), "candidate")
	f, err := os.Create(candidate)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 256 << 20
	for _, at := range []int64{1 << 20, size} {
		if _, err := f.WriteAt([]byte("data"), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(size + 1<<20); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	for _, name := range []string{"old", "new"} {
		if err := e.stage(dir+"/"+name, candidate); err != nil {
			t.Fatal(err)
		}
		if got := blocks(t, e.upper(dir+"/"+name)); got > 64<<10 {
			t.Errorf("%s takes %d bytes", name, got)
		}
	}
	d, err := e.view().Changes(t.Context())
	if err != nil || len(d.Changes) != 2 {
		t.Fatalf("changes %+v, %v", d, err)
	}
	want := strings.Fields(e.must("sha256sum", candidate))[0]
	for _, c := range d.Changes {
		if c.New.SHA256 != want || !c.New.Sparse || c.New.Size != size+1<<20 {
			t.Errorf("%s: %+v, want sha256 %s, sparse", c.Path, *c.New, want)
		}
	}
}

// Whoever reads a FIFO must not be told of a writer that never was.
func TestStageRefusesWhatIsNoFile(t *testing.T) {
	dir := base(t)
	candidate := filepath.Join(t.TempDir(), "candidate")
	write(t, candidate, "candidate\n")
	inHost(t, dir, "mkfifo p; mkdir d; mknod null c 1 3; ln -s file l")
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	e.detach("cat", dir+"/p")
	for name, says := range map[string]string{"p": "it is a fifo", "d": "it is a directory", "null": "it is a device", "l": "it is a symlink"} {
		for _, from := range []string{"", candidate} {
			if err := e.stage(dir+"/"+name, from); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("stage %s from %q: %v, want %q", name, from, err, says)
			}
		}
	}
	// A reader that was told of an end is gone, and this would wait for another.
	if status, out := e.sh("timeout 10 sh -c 'echo x > " + dir + "/p'"); status != 0 {
		t.Errorf("nobody reads the FIFO any more: status %d %s", status, out)
	}
}

// stage puts a candidate into the layer, or a copy of the host's file.
func (e *env) stage(path, candidate string) error {
	var c backends.Candidate
	if candidate != "" {
		f, err := os.Open(candidate)
		if err != nil {
			return err
		}
		defer f.Close()
		c.From = f
	}
	return e.view().Stage(e.t.Context(), change.Path(path), c)
}

func blocks(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
