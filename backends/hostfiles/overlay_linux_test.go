package hostfiles

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// mountOverlay makes a host whose files are an overlay, as in a container, with
// the upper layer on the lower's filesystem or on another.
func mountOverlay(t *testing.T, otherFS bool) *fixture {
	nstest.NewMount(t, nstest.Overlay)
	f := newFixture(t)
	f.put("rw", "dir")
	if otherFS {
		f.ok(unix.Mount("tmpfs", f.path("rw"), "tmpfs", 0, ""))
	}
	for _, d := range []string{"rw/upper", "rw/work", "host"} {
		f.put(d, "dir")
	}
	f.put("lower/etc/a", "file:old")
	f.put("lower/etc/gone", "file:gone")
	f.put("lower/etc/d/f", "file:f")
	layers := "lowerdir=" + f.path("lower") + ",upperdir=" + f.path("rw/upper") + ",workdir=" + f.path("rw/work") +
		",redirect_dir=nofollow,metacopy=off,index=off,xino=off"
	f.ok(unix.Mount("overlay", f.path("host"), "overlay", 0, layers))
	return fixtureAt(t, f.path("host"))
}

// Everything works but moving a directory of the lower layer, which is said
// beforehand.
func TestHostOnOverlay(t *testing.T) {
	f := mountOverlay(t, false)
	before := f.manifest()
	steps := f.swap([]change.Change{
		f.change("/etc/a", "file:new"), f.change("/etc/gone", "none"), f.change("/etc/l", "link:a"),
		f.change("/etc/n", "dir"), f.change("/etc/n/f", "file:f"), f.change("/etc/d", "dir"),
	})
	f.back(steps)
	f.same("host after undo", before, f.manifest())

	got, err := f.host.Preflight(context.Background(), []change.Change{f.change("/etc/d", "none"), f.change("/etc/d/f", "none")})
	f.ok(err)
	if len(got) != 1 || got[0].What != "filesystem" || got[0].Subject != "/etc/d" {
		t.Errorf("blockers %+v", got)
	}
}

// Where files have no number that lasts, the plan is refused and not the swap.
func TestHostOnOverlayOfTwoFilesystems(t *testing.T) {
	f := mountOverlay(t, true)
	got, err := f.host.Preflight(context.Background(), []change.Change{f.change("/etc/a", "file:new"), f.change("/etc/new", "file:n")})
	f.ok(err)
	if len(got) != 1 || got[0].What != "filesystem" || got[0].Subject != "/etc/a" {
		t.Errorf("blockers %+v", got)
	}
}
