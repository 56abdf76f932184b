package hostfiles

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Reproducible builds date everything to the very beginning. That is a time like
// any other, for files, for directories changed in place, and for those that
// the swap touches.
func TestEpochIsATime(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:old")
	f.put("etc/d/x", "file:x")
	f.put("etc/l", "link:a")
	epoch := func(p string) {
		ts := []unix.Timespec{{}, {}}
		f.ok(unix.UtimesNanoAt(unix.AT_FDCWD, f.path(p), ts, unix.AT_SYMLINK_NOFOLLOW))
	}
	for _, p := range []string{"etc/a", "etc/l", "etc/d/x", "etc/d", "etc", "."} {
		epoch(p)
	}
	before := f.manifest()
	cs := []change.Change{
		f.change("/etc/a", "file:new"), f.change("/etc/b", "file:new"), f.change("/etc/d", "dir"),
		f.change("/etc/l", "link:b"), f.change("/etc/n", "dir"), f.change("/etc/n/p", "fifo"),
	}
	for i := range cs {
		cs[i].New.MTime = 0
	}
	steps := f.swap(cs)
	for _, c := range cs {
		fi, err := os.Lstat(f.path(string(c.Path)))
		f.ok(err)
		if fi.ModTime().UnixNano() != 0 {
			t.Errorf("%s is dated %s", c.Path, fi.ModTime())
		}
	}
	f.back(steps)
	f.same("host after undo", before, f.manifest())

	dir := t.TempDir() + "/originals"
	steps = f.stageAs("apply-20260101-000000-late", cs[:1])
	f.ok(f.archive(steps, dir))
	f.ok(f.host.Swap(context.Background(), steps))
	f.ok(f.host.Clean(context.Background(), steps, false))
	steps, err := f.host.Restore(context.Background(), steps, dir)
	f.ok(err)
	f.back(steps)
	f.same("host after an undo from the second copy", before, f.manifest())
}
