package hostfiles

import (
	"context"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// model is a host, and beside it, on the same filesystem, what it is to become.
type model struct {
	*fixture
	name string
	want string // the directory that /etc/x is to be like
	is   map[change.Path]*change.Entry
}

func newModel(t testing.TB, disk, have, want string) *model {
	t.Helper()
	disk, err := os.MkdirTemp(disk, "pair")
	if err != nil {
		t.Fatal(err)
	}
	m := &model{name: have + " becomes " + want, fixture: fixtureAt(t, filepath.Join(disk, "host")), want: filepath.Join(disk, "want")}
	m.ok(os.MkdirAll(m.path("etc/x"), 0o755))
	m.ok(os.MkdirAll(m.want, 0o755))
	kinds[have](&maker{t, m.path("etc/x")}, 'a')
	kinds[want](&maker{t, m.want}, 'b')
	m.age()
	fixtureAt(t, m.want).age()
	m.is = m.entries(m.want)
	return m
}

// Open makes a model the store of its wanted bytes, as files, which may have
// holes.
func (m *model) Open(sum string) (io.ReadCloser, error) {
	for p, e := range m.is {
		if e.SHA256 == sum {
			return os.Open(filepath.Join(m.want, string(p)))
		}
	}
	return nil, fs.ErrNotExist
}

// entries describes everything below a directory, by path relative to it.
func (m *model) entries(dir string) map[change.Path]*change.Entry {
	m.t.Helper()
	var paths []change.Path
	m.ok(filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if p != dir {
			paths = append(paths, change.Path(p[len(dir):]))
		}
		return err
	}))
	found, err := New(dir).Observe(context.Background(), paths)
	m.ok(err)
	all := map[change.Path]*change.Entry{}
	for i, p := range paths {
		all[p] = found[i]
	}
	return all
}

// changes are what makes the host like the model.
func (m *model) changes() []change.Change {
	m.t.Helper()
	have, want := m.entries(m.path("etc/x")), m.is
	first := map[change.Identity]change.Path{}
	var cs []change.Change
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if filepath.Base(string(p)) == bystander {
			continue
		}
		e, at := *want[p], "/etc/x"+p
		if e.Links > 1 {
			if to, again := first[*e.ID]; again {
				e.Link = to
			} else {
				first[*e.ID] = at
			}
		}
		e.ID, e.Links = nil, 0
		cs = append(cs, change.Change{Kind: change.KindFile, Op: change.Modified, Path: at, Old: have[p], New: &e})
	}
	for p, e := range have {
		if want[p] == nil {
			cs = append(cs, change.Change{Kind: change.KindFile, Op: change.Deleted, Path: "/etc/x" + p, Old: e})
		}
	}
	change.Sort(cs)
	return cs
}

// picture is everything about the host that can be told.
func (m *model) picture(inodes bool) []string {
	m.t.Helper()
	lines, err := manifest.Read(m.dir, manifest.Options{Inodes: inodes})
	m.ok(err)
	return lines
}

func (m *model) equal(what string, want, got []string) {
	m.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		m.t.Fatalf("%s: %s (-want +got):\n%s", m.name, what, d)
	}
}

// asModel compares what was applied with the model. The directory itself is not
// part of the plan.
func (m *model) asModel(what string) {
	m.t.Helper()
	want, err := manifest.Read(m.want, manifest.Options{})
	m.ok(err)
	got, err := manifest.Read(m.path("etc/x"), manifest.Options{})
	m.ok(err)
	m.equal(what, want[1:], got[1:])
}

func (m *model) staged(txn string) []backends.Step {
	m.t.Helper()
	ctx, cs := context.Background(), m.changes()
	blockers, err := m.host.Preflight(ctx, cs)
	m.ok(err)
	if len(blockers) > 0 {
		m.t.Fatalf("%s: blockers: %+v", m.name, blockers)
	}
	steps, err := m.host.Snapshot(ctx, txn, cs)
	m.ok(err)
	steps, err = m.host.Stage(ctx, steps, m)
	m.ok(err)
	return steps
}

func (m *model) applied(steps []backends.Step) {
	m.t.Helper()
	m.ok(m.host.Swap(context.Background(), steps))
	left, err := m.host.Verify(context.Background(), steps)
	m.ok(err)
	if len(left) > 0 {
		m.t.Fatalf("%s: not as wanted: %+v", m.name, left)
	}
	m.asModel("host after the swap")
}

var inodes = regexp.MustCompile(manifest.Inode + `[0-9]+`)

// dead is what a process dies of in these tests: a panic that stands for it,
// since nothing of a call is kept in memory.
type dead struct{}

// dying calls f, which ends at the n-th traced point, and reports that it did.
func dying(n int, f func() error) (died bool, err error) {
	TestOnlyStep = func(string) {
		if n--; n < 0 {
			panic(dead{})
		}
	}
	defer func() {
		TestOnlyStep = nil
		switch r := recover().(type) {
		case nil:
		case dead:
			died = true
		default:
			panic(r)
		}
	}()
	return false, f()
}

// pair takes one pair of kinds through all that can happen to it.
func (m *model) pair(nth int) (kills int) {
	m.t.Helper()
	ctx, before := context.Background(), m.picture(true)
	steps := m.staged("apply-1")
	m.applied(steps)
	m.back(steps)
	m.equal("host after undo", before, m.picture(true))

	// Killed in the middle of the swap, and again in the middle of its undo.
	steps = m.staged("apply-2")
	for _, f := range []func() error{
		func() error { return m.host.Swap(ctx, steps) },
		func() error { _, err := m.host.Undo(ctx, steps); return err },
	} {
		died, err := dying(nth%7, f)
		m.ok(err)
		if died {
			kills++
		}
	}
	m.back(steps)
	m.equal("host after a crash and recovery", before, m.picture(true))

	// Taken back late, with the first backup gone.
	steps = m.staged("apply-3")
	second := filepath.Join(m.t.TempDir(), "second")
	m.ok(m.archive(steps, second))
	m.applied(steps)
	m.ok(m.host.Clean(ctx, steps, false))
	steps, err := m.host.Restore(ctx, steps, second)
	m.ok(err)
	m.back(steps)
	m.equal("host after a late undo", without(before), without(m.picture(true)))
	return kills
}

// without drops inode numbers.
func without(lines []string) []string {
	var all []string
	for _, l := range lines {
		all = append(all, inodes.ReplaceAllString(l, ""))
	}
	return all
}

// Every kind that can stand on a host against every kind that can be wanted, on
// each filesystem: exact after the swap, after an undo, after a crash in each of
// the two, and after an undo from the second copy. All pairs on the usual
// filesystem, every kind on both sides on the others.
func TestEveryPairOfKinds(t *testing.T) {
	for _, disk := range []loopfs.Kind{"tmpfs", loopfs.Ext4, loopfs.XFS, loopfs.Btrfs} {
		t.Run(string(disk), func(t *testing.T) {
			nstest.NewMount(t, nstest.Root)
			at := newDisk(t, disk)
			pairs, kills := 0, 0
			for i, have := range slices.Sorted(maps.Keys(kinds)) {
				for j, want := range slices.Sorted(maps.Keys(kinds)) {
					if have == "nothing" && want == "nothing" || disk != loopfs.Ext4 && (i+j)%4 > 0 {
						continue
					}
					// No test of its own: that would be on a thread that does not see the mount.
					m := newModel(t, at, have, want)
					kills += m.pair(pairs)
					m.ok(os.RemoveAll(filepath.Dir(m.dir)))
					pairs++
				}
			}
			t.Logf("%s: %d pairs exact, %d crashes", disk, pairs, kills)
		})
	}
}

// newDisk mounts an empty filesystem in the test's mount namespace.
func newDisk(t testing.TB, k loopfs.Kind, o ...loopfs.Options) string {
	t.Helper()
	if k != "tmpfs" {
		return loopfs.Make(t, k, 0, o...)
	}
	at := t.TempDir()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	return at
}
