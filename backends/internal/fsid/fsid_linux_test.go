package fsid

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func of(t *testing.T, dir string) string {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	id, err := Of(fd)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func check(t *testing.T, a, b string, same bool) {
	t.Helper()
	if got, known := Same(a, b); got != same || !known {
		t.Errorf("%q and %q: same %v, known %v", a, b, got, known)
	}
}

// One image on another device is the same filesystem; another image on the same
// device is not.
func TestImages(t *testing.T) {
	for _, k := range []loopfs.Kind{loopfs.Ext4, loopfs.XFS, loopfs.Btrfs} {
		t.Run(string(k), func(t *testing.T) {
			nstest.NewMount(t)
			one, two := loopfs.Image(t, k, 0), loopfs.Image(t, k, 0)
			seen := func(image string) string {
				dir := loopfs.Mount(t, k, image)
				defer unix.Unmount(dir, 0)
				return of(t, dir)
			}
			a, other, again := seen(one), seen(two), seen(one)
			check(t, a, again, true)
			check(t, a, other, false)
		})
	}
}

func TestSubvolumes(t *testing.T) {
	nstest.NewMount(t, nstest.Tool("btrfs"))
	dir := loopfs.Make(t, loopfs.Btrfs, 0)
	if out, err := exec.Command("btrfs", "subvolume", "create", dir+"/a").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check(t, of(t, dir), of(t, dir+"/a"), false)
}

func TestMemory(t *testing.T) {
	nstest.NewMount(t)
	tmpfs := func() string {
		dir := t.TempDir()
		if err := unix.Mount("x", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	a := tmpfs()
	check(t, of(t, a), of(t, a), true)
	check(t, of(t, a), of(t, tmpfs()), false)
	check(t, "boot:one/uuid:1", "boot:two/uuid:2", true)
}

func TestUnknown(t *testing.T) {
	for _, p := range [][2]string{{"", "uuid:1"}, {"uuid:1", ""}, {"", ""}, {"fsid:1", "uuid:1"}} {
		if _, known := Same(p[0], p[1]); known {
			t.Errorf("%q and %q can be told apart", p[0], p[1])
		}
	}
}
