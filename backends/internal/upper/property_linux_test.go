package upper

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// fresh empties host and environment for the next round.
func (l *lab) fresh() {
	l.t.Helper()
	// A round that failed may have left it unmounted.
	if err := unix.Unmount(l.merged, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		l.t.Fatal(err)
	}
	for _, dir := range []string{l.host, l.env, l.env + "/layers/root/upper", l.env + "/layers/root/work"} {
		entries, err := os.ReadDir(dir)
		if os.IsNotExist(err) {
			continue
		}
		must(l.t, err)
		for _, e := range entries {
			if e.Name() != "layers" {
				must(l.t, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	for _, dir := range []string{l.host, l.env + "/layers/root/upper"} {
		must(l.t, os.Chmod(dir, 0o755))
		must(l.t, os.Chown(dir, 0, 0))
	}
}

// differences is the property: whatever was done in a view, Diff says exactly
// what a comparison of the merged tree with the host's says, before and after a
// rebuild; a reset of any path gives the host's back there and nowhere else; and
// nothing differs when all of it was applied.
func (l *lab) differences(t *rapid.T) {
	l.fresh()
	names := []string{"a", "b", "c"}
	must(l.t, plant(t, l.host, names, 3))
	l.mount()
	for range rapid.SampledFrom([]int{12, 24, 4}).Draw(t, "view edits") {
		randomEdit(t, l.merged, names)
		if rapid.IntRange(0, 4).Draw(t, "record") == 0 {
			must(l.t, Record(l.env, Window{TView: l.tview}))
		}
	}
	host := l.tree(l.host)
	view := l.tree(l.merged)
	want := model(host, view)
	for _, kind := range kinds {
		if strings.Contains(want, kind) {
			l.seen[kind]++
		}
	}
	l.same(t, "in the live view", want)
	l.unmount()
	l.mount()
	l.same(t, "after a rebuild", want)
	switch evenly(t, "then", []string{"reset", "reset", "settle", "leave"}) {
	case "reset":
		l.resetOne(t, host, view)
	case "settle":
		l.settleAll(t, view)
	}
}

// settleAll makes the host what the view is, by other hands than the program's,
// and settles all that Diff had called a change.
func (l *lab) settleAll(t *rapid.T, view tree) {
	d := l.diff()
	var applied []change.Path
	for _, c := range d.Changes {
		applied = append(applied, c.Path)
	}
	copied := filepath.Join(l.t.TempDir(), "copy")
	l.run(".", "cp -aT "+l.merged+" "+copied)
	l.unmount()
	l.run(l.host, "find . -mindepth 1 -delete; cp -aT "+copied+" .; rm -rf "+copied)
	must(l.t, Settle(l.env, applied))
	for _, p := range applied { // what was only copied may stay, and directories above it
		st, err := os.Lstat(l.env + "/layers/root/upper" + strings.TrimPrefix(string(p), l.host))
		if err == nil && !st.IsDir() {
			t.Fatalf("after settling: the upper still holds %s", p)
		}
	}
	l.mount()
	l.same(t, "after settling", "")
	if now := l.tree(l.merged); model(view, now) != "" {
		t.Fatalf("after settling the view is another:\n%s", model(view, now))
	}
}

func (l *lab) tree(root string) tree {
	l.t.Helper()
	t, err := readTree(root)
	must(l.t, err)
	return t
}

func (l *lab) same(t *rapid.T, when, want string) {
	got, err := l.found()
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if got != want {
		t.Fatalf("%s: Diff says\n%s\nthe trees say\n%s", when, got, want)
	}
}

func (l *lab) resetOne(t *rapid.T, host, view tree) {
	all := map[string]bool{}
	for _, tr := range []tree{host, view} {
		for p := range tr {
			all[p] = p != "."
		}
	}
	delete(all, ".")
	if len(all) == 0 {
		return
	}
	rel := rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "reset")
	l.unmount()
	err := Remove(l.env, []change.Path{change.Path(filepath.Join(l.host, rel))})
	l.mount()
	if err != nil {
		if !strings.Contains(err.Error(), "reset that one") {
			t.Fatalf("reset %s: %v", rel, err)
		}
		return
	}
	now := l.tree(l.merged)
	for _, tr := range []tree{host, view, now} {
		for p := range tr {
			switch {
			case within(p, rel):
				if now[p].text != host[p].text {
					t.Fatalf("after reset of %s: %s is %q, the host has %q", rel, p, now[p].text, host[p].text)
				}
			case within(rel, p): // above: may have come back with what was reset
			case now[p].text != view[p].text:
				t.Fatalf("after reset of %s: %s is %q, was %q", rel, p, now[p].text, view[p].text)
			}
		}
	}
	l.same(t, "after reset of "+rel, model(host, now))
}

// kinds are words of the model's lines that must come up: a property that is
// never put to the test holds always.
var kinds = []string{
	"added", "modified", "replaced", "deleted", " = ", " file ", " directory ", " symlink ", " fifo ",
	" user.k=", " trusted.k=", " " + xattr.ACL + "=", " " + xattr.DefaultACL + "=", " " + xattr.Capability + "=", " bytes ",
}

func TestDiffEqualsAComparisonOfTrees(t *testing.T) {
	l := newLab(t, "true")
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return l.seen[kind] > 0 })
	}
	// One round of a hundred trees nearly always has everything.
	for round := 0; round < 5 && len(missing()) > 0; round++ {
		rapid.Check(t, l.differences)
	}
	if m := missing(); len(m) > 0 {
		t.Errorf("no difference had %q", m)
	}
	t.Logf("how many differences had what: %v", l.seen)
}

func FuzzDiffEqualsAComparisonOfTrees(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		rapid.MakeFuzz(newLab(t, "true").differences)(t, b)
	})
}
