package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// newXFS has the ids of projects whether or not quotas are enforced; ext4 has
// them only in kernels with QFMT_V2.
func newXFS(t testing.TB) *fixture {
	t.Helper()
	f := fixtureAt(t, loopfs.Make(t, loopfs.XFS, 0))
	f.put("srv/p", "dir")
	f.put("srv/q", "dir")
	f.put("srv/file", "file:of no project")
	return f
}

// setProject gives an object a project, which a directory passes on.
func (f *fixture) setProject(p string, id, flags uint32) {
	f.t.Helper()
	fd, err := os.Open(f.path(p))
	f.ok(err)
	defer fd.Close()
	x := fsxattr{project: id, xflags: flags}
	// FS_IOC_FSSETXATTR is _IOW('X', 32, struct fsxattr).
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd.Fd(), 0x401c5820, uintptr(unsafe.Pointer(&x))); e != 0 {
		f.t.Fatalf("set project of %s: %v", p, e)
	}
}

// What is in a directory of a project is staged in that project, goes where it
// belongs, and comes back.
func TestProjectsOfTheirOwn(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := newXFS(t)
	f.setProject("srv/p", 7, projectInherits)
	f.setProject("srv/q", 8, projectInherits)
	f.put("srv/p/a", "file:old")
	f.put("srv/p/sub/b", "file:old")
	f.put("srv/q/c", "file:old")
	f.age()
	before := f.manifest()
	cs := []change.Change{
		f.change("/srv/p/a", "file:new"), f.change("/srv/p/sub/b", "none"), f.change("/srv/p/n", "dir"),
		f.change("/srv/p/n/f", "file:f"), f.change("/srv/q/c", "link:x"), f.change("/srv/q/d", "fifo"),
		f.change("/srv/file", "file:new"),
	}
	steps := f.swap(cs)
	var dirs []string
	for _, d := range places(steps) {
		dirs = append(dirs, string(d))
	}
	want := []string{"/.netsandbox-apply-20260101-000000-test", "/srv/p/.netsandbox-apply-20260101-000000-test", "/srv/q/.netsandbox-apply-20260101-000000-test"}
	if !slices.Equal(dirs, want) {
		t.Errorf("staged in %v", dirs)
	}
	fd, err := os.Open(f.path("srv/p/n/f"))
	f.ok(err)
	defer fd.Close()
	if id, _ := project(int(fd.Fd())); id != 7 {
		t.Errorf("the new file is of project %d", id)
	}
	f.back(steps)
	f.same("host after undo", before, f.manifest())
}

// One file cannot be of two projects, and what is of another project than its
// directory could leave it but never come back. Both are said beforehand.
func TestProjectsThatKeepApart(t *testing.T) {
	nstest.NewMount(t, nstest.Root, nstest.Tool("chattr"))
	f := newXFS(t)
	f.put("srv/p/older", "file:than the project")
	f.setProject("srv/p", 7, projectInherits)
	f.setProject("srv/q", 8, projectInherits)
	cs := append(f.names("one", "/srv/p/one", "/srv/q/one"), f.change("/srv/p/older", "file:new"))
	got, err := f.host.Preflight(t.Context(), cs)
	f.ok(err)
	if len(got) != 2 || got[0].What != "project" || got[0].Subject != "/srv/p/older" ||
		got[1].What != "hard-link" || got[1].Subject != "/srv/q/one" {
		t.Fatalf("blockers %+v", got)
	}
	fix := strings.ReplaceAll(got[0].Fix, "/srv/p/older", f.path("srv/p/older"))
	if out, err := exec.Command("sh", "-c", fix).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", fix, err, out)
	}
	f.back(f.swap(cs[2:]))
}

// A quota that is used up is found by the staging, where statfs(2) does not tell;
// nothing of it remains.
func TestQuotaIsUsedUp(t *testing.T) {
	nstest.NewMount(t, nstest.Root, nstest.Tool("btrfs"))
	f := fixtureAt(t, loopfs.Make(t, loopfs.Btrfs, 256<<20))
	f.put("srv", "dir")
	btrfs := func(arg ...string) {
		if out, err := exec.Command("btrfs", arg...).CombinedOutput(); err != nil {
			t.Fatalf("btrfs %v: %v: %s", arg, err, out)
		}
	}
	btrfs("subvolume", "create", f.path("srv/vol"))
	btrfs("quota", "enable", f.dir)
	btrfs("qgroup", "limit", "1M", f.path("srv/vol"))
	f.put("srv/vol/a", "file:old")
	f.put("srv/b", "file:old")
	f.age()
	before := f.manifest()
	cs := []change.Change{f.change("/srv/b", "file:new")}
	for i := range 4 {
		cs = append(cs, f.change(fmt.Sprint("/srv/vol/", i), "file:"+strings.Repeat(fmt.Sprint(i), 1<<20)))
	}
	steps, err := f.host.Snapshot(t.Context(), "apply-1", cs)
	f.ok(err)
	if _, err := f.host.Stage(t.Context(), steps, f.wanted); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("stage: %v", err)
	}
	f.ok(f.host.Clean(t.Context(), steps, false))
	f.same("host", before, f.manifest())
}

// A subvolume of btrfs is a filesystem of its own to rename(2) and link(2).
func TestSubvolumes(t *testing.T) {
	nstest.NewMount(t, nstest.Root, nstest.Tool("btrfs"))
	f := fixtureAt(t, loopfs.Make(t, loopfs.Btrfs, 0))
	f.put("srv", "dir")
	for _, p := range []string{"srv/vol", "srv/vol/nested"} {
		if out, err := exec.Command("btrfs", "subvolume", "create", f.path(p)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	f.put("srv/vol/a", "file:old")
	f.put("srv/vol/nested/b", "file:old")
	f.put("srv/c", "file:old")
	f.age()
	before := f.manifest()
	steps := f.swap([]change.Change{
		f.change("/srv/vol/a", "file:new"), f.change("/srv/vol/nested/b", "none"), f.change("/srv/c", "dir"), f.change("/srv/vol/nested", "dir"),
	})
	if n := len(places(steps)); n != 3 {
		t.Errorf("staged in %v", places(steps))
	}
	f.back(steps)
	f.same("host after undo", before, f.manifest())
	cs := append(f.names("one", "/srv/one", "/srv/vol/one"), f.change("/srv/vol/nested/b", "none"), f.change("/srv/vol/nested", "none"))
	got, err := f.host.Preflight(t.Context(), cs)
	f.ok(err)
	if len(got) != 2 || got[0].What != "filesystem" || got[0].Subject != "/srv/vol/nested" || got[1].What != "hard-link" {
		t.Errorf("blockers %+v", got)
	}
}
