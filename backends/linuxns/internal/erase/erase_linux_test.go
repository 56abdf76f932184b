package erase

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// tree makes a directory to be deleted, with a neighbour that must stay.
func tree(t *testing.T) (dir, at string) {
	t.Helper()
	dir = t.TempDir()
	at = filepath.Join(dir, "tree")
	ok(t, os.MkdirAll(filepath.Join(at, "upper", "etc"), 0o755))
	ok(t, os.WriteFile(filepath.Join(at, "upper", "etc", "secret"), []byte("MARKER"), 0o600))
	ok(t, os.Mkdir(filepath.Join(dir, "beside"), 0o755))
	ok(t, os.WriteFile(filepath.Join(dir, "beside", "kept"), []byte("kept"), 0o600))
	ok(t, os.Symlink("../beside", filepath.Join(at, "link")))
	ok(t, os.Symlink(filepath.Join(dir, "beside", "kept"), filepath.Join(at, "upper", "absolute")))
	return dir, at
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// gone deletes the tree and wants nothing of it left, and its neighbour whole.
func gone(t *testing.T, dir string) {
	t.Helper()
	ok(t, Tree(dir, "tree"))
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tree is there: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "beside", "kept")); err != nil || string(b) != "kept" {
		t.Errorf("its neighbour is %q, %v", b, err)
	}
	names, err := os.ReadDir(dir)
	ok(t, err)
	if len(names) != 1 {
		t.Errorf("left beside it: %v", names)
	}
}

func TestEveryKindOfFileGoes(t *testing.T) {
	nstest.New(t, nstest.Root)
	dir, at := tree(t)
	ok(t, unix.Mkfifo(filepath.Join(at, "fifo"), 0o600))
	ok(t, unix.Mknod(filepath.Join(at, "whiteout"), unix.S_IFCHR, 0))
	ok(t, os.Mkdir(filepath.Join(at, "work"), 0))
	ok(t, os.WriteFile(filepath.Join(at, "bad\xff\n name"), nil, 0))
	gone(t, dir)
	ok(t, Tree(dir, "tree")) // again, as after a crash
}

func TestWhatIsProtectedGoesToo(t *testing.T) {
	nstest.New(t, nstest.Root)
	dir, at := tree(t)
	for name, flag := range map[string]int{"upper/etc/secret": 0x10, "upper/etc": 0x20, "upper": 0x10, ".": 0x10} {
		f, err := os.Open(filepath.Join(at, name))
		ok(t, err)
		ok(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flag))
		f.Close()
	}
	if err := os.Remove(filepath.Join(at, "upper/etc/secret")); !errors.Is(err, unix.EPERM) {
		t.Fatalf("it is not protected here: %v", err)
	}
	gone(t, dir)
}

// A view can nest directories deeper than a path is long and than a process has
// descriptors.
func TestDepthIsNoShelter(t *testing.T) {
	nstest.New(t, nstest.Root)
	dir, at := tree(t)
	fd, err := unix.Open(at, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	ok(t, err)
	for range 5000 {
		ok(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(fd)
		ok(t, err)
		fd = next
	}
	unix.Close(fd)
	gone(t, dir)
}

func TestManyFilesGo(t *testing.T) {
	dir, at := tree(t)
	for i := range 10000 {
		ok(t, os.WriteFile(filepath.Join(at, "upper", fmt.Sprintf("%d", i)), nil, 0o600))
	}
	gone(t, dir)
}

// A discard and a recover may find the same tree to delete.
func TestTwoDeleteTheSameTree(t *testing.T) {
	dir, at := tree(t)
	for i := range 300 {
		deep := filepath.Join(at, fmt.Sprintf("d%d/e/f", i%100), fmt.Sprint(i))
		ok(t, os.MkdirAll(deep, 0o755))
		ok(t, os.WriteFile(filepath.Join(deep, "file"), nil, 0o600))
	}
	all := make(chan error)
	const deleters = 4
	for range deleters {
		go func() { all <- Tree(dir, "tree") }()
	}
	for range deleters {
		if err := <-all; err != nil {
			t.Error(err)
		}
	}
	gone(t, dir)
}

func TestWhatIsMountedInItIsNotEntered(t *testing.T) {
	nstest.New(t, nstest.Root)
	dir, at := tree(t)
	point := filepath.Join(at, "upper", "etc")
	ok(t, unix.Mount(filepath.Join(dir, "beside"), point, "", unix.MS_BIND, ""))
	var mounted *MountedError
	if err := Tree(dir, "tree"); !errors.As(err, &mounted) || mounted.Point != point {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(at, "link")); err != nil {
		t.Errorf("something was deleted: %v", err)
	}
	ok(t, unix.Unmount(point, 0))
	gone(t, dir)
}
