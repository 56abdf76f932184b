package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// newSeveral is a host of five filesystems with the same things on each.
func newSeveral(t testing.TB) (f *fixture, mounts []string) {
	t.Helper()
	f = newFixture(t)
	mounts = []string{"", "ext4", "xfs", "btrfs", "tmpfs"}
	for _, m := range mounts[1:] {
		f.ok(os.Mkdir(f.path(m), 0o755))
		if m == "tmpfs" {
			f.ok(unix.Mount("tmpfs", f.path(m), "tmpfs", 0, ""))
			continue
		}
		loopfs.Make(t, loopfs.Kind(m), 0, loopfs.Options{At: f.path(m)})
	}
	for _, m := range mounts {
		f.put(m+"/etc/a", "file:old")
		f.put(m+"/etc/gone/x", "file:x")
		f.put(m+"/etc/mode", "dir")
	}
	return f, mounts
}

func (f *fixture) onEach(mounts []string) []change.Change {
	var cs []change.Change
	for _, m := range mounts {
		at := ""
		if m != "" {
			at = "/" + m
		}
		cs = append(cs,
			f.change(at+"/etc/a", "file:new"), f.change(at+"/etc/gone", "none"), f.change(at+"/etc/gone/x", "none"),
			f.change(at+"/etc/mode", "dir"), f.change(at+"/etc/p", "fifo"), f.change(at+"/etc/n", "dir"), f.change(at+"/etc/n/l", "link:a"))
		cs = append(cs, f.names("one", at+"/etc/n/one", at+"/etc/two")...)
	}
	return cs
}

// One transaction over five filesystems is whole or not at all, wherever it dies.
func TestSeveralFilesystemsAtEveryPoint(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f, mounts := newSeveral(t)
	f.age()
	m := &model{fixture: f}
	before := m.picture(true)
	cs, points := f.onEach(mounts), 0
	for n := 0; ; n += 2 { // what follows one step is what goes before the next
		steps := f.stageAs(fmt.Sprint("apply-", n), cs)
		if len(places(steps)) != len(mounts) {
			t.Fatalf("staged in %v", places(steps))
		}
		died, err := dying(n, func() error { return f.host.Swap(t.Context(), steps) })
		f.ok(err)
		if !died {
			left, err := f.host.Verify(t.Context(), steps)
			f.ok(err)
			if len(left) > 0 {
				t.Errorf("not as wanted: %s", sprint(left))
			}
		}
		again, err := dying(n/2, func() error { _, err := f.host.Undo(t.Context(), steps); return err })
		f.ok(err)
		f.back(steps)
		m.equal(fmt.Sprintf("host after dying at point %d", n), before, m.picture(true))
		if !died && !again {
			break
		}
		points++
	}
	t.Logf("killed at %d points", points)
}

// Of several filesystems one changes: nothing is half.
func TestSeveralFilesystemsOneOfThemChanged(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f, mounts := newSeveral(t)
	f.age()
	steps := f.stage(f.onEach(mounts))
	f.put("xfs/etc/a", "file:edited")
	if err := f.host.Swap(t.Context(), steps); !errors.Is(err, backends.ErrHostChanged) {
		t.Fatalf("swap: %v", err)
	}
	f.back(steps)
	for _, m := range mounts {
		want := "old"
		if m == "xfs" {
			want = "edited"
		}
		if got := f.read(m + "/etc/a"); got != want {
			t.Errorf("%s/etc/a is %q, want %q", m, got, want)
		}
	}
}
