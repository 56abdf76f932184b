package hostfiles

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Somebody put an original back by hand, with another file or in ours. The next
// undo takes that for done, and the original itself comes back with all it had.
func TestUndoAfterSomebodyPutItBack(t *testing.T) {
	for name, put := range map[string]func(*fixture){
		"with another file": func(f *fixture) { f.ok(os.Remove(f.path("etc/a"))); f.put("etc/a", "file:old") },
		"in our file":       func(f *fixture) { f.put("etc/a", "file:old") },
		"with another link": func(f *fixture) { f.ok(os.Remove(f.path("etc/l"))); f.ok(os.Symlink("before", f.path("etc/l"))) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.put("etc/a", "file:old")
			f.put("etc/l", "link:before")
			f.age()
			before := timeless(f.manifest())
			steps := f.swap([]change.Change{f.change("/etc/a", "file:new"), f.change("/etc/l", "link:after")})
			put(f)
			f.back(steps)
			f.same("undo", before, timeless(f.manifest()))
		})
	}
}

// Where the directory of an original became a symlink, no advice leads through it.
func TestAdviceFollowsNoSymlink(t *testing.T) {
	f := newFixture(t)
	f.put("etc/app/a", "file:old")
	f.put("etc/app/gone", "file:gone")
	f.put("victim/a", "file:theirs")
	steps := f.swap([]change.Change{f.change("/etc/app/a", "file:new"), f.change("/etc/app/gone", "none")})
	f.ok(os.Rename(f.path("etc/app"), f.path("etc/moved")))
	f.ok(os.Symlink("../victim", f.path("etc/app")))
	left, err := f.host.Undo(context.Background(), steps)
	f.ok(err)
	if len(left) != 2 || strings.Contains(sprint(left), "mv ") {
		t.Errorf("leftovers %s", sprint(left))
	}
}
