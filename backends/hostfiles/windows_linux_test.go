package hostfiles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// at runs f once, at a traced point: between a look and the rename it is for.
func (f *fixture) at(point string, act func()) {
	TestOnlyStep = func(p string) {
		if p == point && act != nil {
			do := act
			act = nil
			do()
		}
	}
	f.t.Cleanup(func() {
		TestOnlyStep = nil
		if act != nil {
			f.t.Errorf("point %q was never reached", point)
		}
	})
}

// Somebody is faster than the exchange. What they did is brought back by the
// undo, whether they wrote to the file or put another in its place.
func TestHostChangesInTheWindowOfTheSwap(t *testing.T) {
	for name, upset := range map[string]func(*fixture){
		"written":  func(f *fixture) { f.put("etc/a", "file:edited") },
		"replaced": func(f *fixture) { f.replace("etc/a", "edited") },
	} {
		for _, want := range []string{"file:new", "none"} {
			t.Run(name+" to "+kindOf(want), func(t *testing.T) {
				f := newFixture(t)
				f.put("etc/a", "file:old")
				f.age()
				steps := f.stage([]change.Change{f.change("/etc/a", want)})
				f.at("before swap /etc/a", func() { upset(f) })
				if err := f.host.Swap(context.Background(), steps); !errors.Is(err, backends.ErrHostChanged) {
					t.Fatalf("swap: %v", err)
				}
				f.back(steps)
				if got := f.read("etc/a"); got != "edited" {
					t.Errorf("after undo %q", got)
				}
			})
		}
	}
}

// A swap that dies between its last rename and the time after it has done every
// step, and yet nobody else touched the directory.
func TestSwapDiesBeforeTheLastDate(t *testing.T) {
	for _, want := range []string{"file:new", "none"} {
		t.Run(kindOf(want), func(t *testing.T) {
			f := newFixture(t)
			f.put("etc/a", "file:old")
			f.age()
			before := f.manifest()
			steps := f.stage([]change.Change{f.change("/etc/a", want)})
			f.at("before date /etc", func() { panic("dies") })
			func() {
				defer func() { _ = recover() }()
				f.ok(f.host.Swap(context.Background(), steps))
			}()
			f.back(steps)
			f.same("host after undo", before, f.manifest())
		})
	}
}

// In the window of the undo: they keep what they wrote, and the
// original stays beside it.
func TestHostChangesInTheWindowOfTheUndo(t *testing.T) {
	for name, upset := range map[string]func(*fixture){
		"written":  func(f *fixture) { f.put("etc/a", "file:edited") },
		"replaced": func(f *fixture) { f.replace("etc/a", "edited") },
	} {
		for _, had := range []string{"file:old", "none"} {
			t.Run(name+" after "+kindOf(had), func(t *testing.T) {
				f := newFixture(t)
				f.put("etc/other", "file:other")
				f.put("etc/a", had)
				f.age()
				steps := f.swap([]change.Change{f.change("/etc/a", "file:new")})
				f.at("before undo /etc/a", func() { upset(f) })
				left, err := f.host.Undo(context.Background(), steps)
				f.ok(err)
				if len(left) != 1 || f.read("etc/a") != "edited" {
					t.Fatalf("leftovers %+v, content %q", left, f.read("etc/a"))
				}
				f.ok(f.host.Clean(context.Background(), steps, true))
				if had != "none" && f.read(string(backup(steps[0]))) != "old" {
					t.Error("the original is lost")
				}
			})
		}
	}
}

// The second copy is of what the plan was made from, or there is none.
func TestArchiveOfAChangedFileIsRefused(t *testing.T) {
	for name, now := range map[string]string{"shorter": "file:o", "longer": "file:older", "other": "file:odd"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.put("etc/a", "file:old")
			steps := f.stage([]change.Change{f.change("/etc/a", "file:new")})
			f.put("etc/a", now)
			err := f.archive(steps, filepath.Join(t.TempDir(), "second"))
			if !errors.Is(err, backends.ErrHostChanged) {
				t.Errorf("archive: %v", err)
			}
		})
	}
}

// Where anybody could rename our hidden directory, it is put lower.
func TestHiddenDirectoryIsNotWhereOthersWrite(t *testing.T) {
	for name, c := range map[string]struct {
		mode os.FileMode
		want change.Path
	}{
		"private": {0o755, "/"}, "sticky": {0o777 | os.ModeSticky, "/"}, "shared": {0o777, "/etc"}, "group": {0o775, "/etc"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.put("etc/conf.d", "dir")
			f.ok(os.Chmod(f.path("etc/conf.d"), 0o755))
			f.ok(os.Chmod(f.dir, c.mode))
			steps := f.swap([]change.Change{f.change("/etc/conf.d/a", "file:a")})
			if d, _ := split(steps[0].Place.Dir); d != c.want {
				t.Errorf("staged in %s, want %s", d, c.want)
			}
			f.back(steps)
		})
	}
}

// A change time of just now hides a second write in the same tick, so it is
// waited out. No older and no future one is.
func TestSettle(t *testing.T) {
	now := time.Now()
	if settle(now.Add(-time.Second).UnixNano()) || settle(now.Add(time.Hour).UnixNano()) {
		t.Error("waited for a time that tells")
	}
	if !settle(now.UnixNano()) || time.Since(now) < tick {
		t.Error("did not wait out the tick")
	}
}
