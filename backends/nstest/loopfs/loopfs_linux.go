package loopfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// Make returns a directory on which a new filesystem is mounted, of the given
// size or of the least that its kind can have. The goroutine must be in a mount
// namespace of the test's, as [nstest.New] makes one. It is unmounted at the end
// of the test.
func Make(t testing.TB, k Kind, size int64, options ...Options) string {
	t.Helper()
	o := one(options)
	return Mount(t, k, Image(t, k, size, o), o)
}

// Image makes an image and does not mount it. It is kept in memory: what a test
// syncs waits for no disk of the machine.
func Image(t testing.TB, k Kind, size int64, options ...Options) string {
	t.Helper()
	nstest.Require(t, nstest.Root, k.Req())
	o := one(options)
	r := recipes[k]
	var path string
	var argv []string
	if k == Squashfs {
		path = filepath.Join(t.TempDir(), string(k))
		argv = append([]string{r.mkfs[0], o.Tree, path, "-quiet", "-no-progress"}, o.Mkfs...)
	} else {
		path = memory(t, string(k), max(size, r.size))
		argv = append(append(slices.Clone(r.mkfs), o.Mkfs...), path)
	}
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("loopfs: %v: %v\n%s", argv, err, out)
	}
	return path
}

// memory makes an empty file that lives as long as the test, and names it for
// other programs too.
func memory(t testing.TB, name string, size int64) string {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatalf("loopfs: memfd_create: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatalf("loopfs: %v", err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
}

// Mount mounts an image, as often as a test likes, and returns where.
func Mount(t testing.TB, k Kind, image string, options ...Options) string {
	t.Helper()
	private(t)
	o := one(options)
	if o.At == "" {
		o.At = t.TempDir()
	}
	dev, err := attach(image, k == Squashfs)
	if err != nil {
		t.Fatalf("loopfs: attach %s: %v", image, err)
	}
	defer dev.Close()
	if k == Squashfs {
		o.Flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(dev.Name(), o.At, string(k), o.Flags, o.Data); err != nil {
		t.Fatalf("loopfs: mount %s on %s: %v", k, o.At, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(o.At, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			t.Errorf("loopfs: unmount %s: %v", o.At, err)
		}
		if err := released(dev.Name(), image); err != nil {
			t.Errorf("loopfs: %s of %s: %v", k, o.At, err)
		}
	})
	// Whoever plays a user of the machine must get at it, as on a real one.
	if k != Squashfs && o.Flags&unix.MS_RDONLY == 0 {
		if err := os.Chmod(o.At, 0o755); err != nil {
			t.Fatalf("loopfs: %v", err)
		}
	}
	return o.At
}

func one(options []Options) Options {
	if len(options) == 0 {
		return Options{}
	}
	return options[0]
}

// private stops a test that would mount on the machine itself.
func private(t testing.TB) {
	t.Helper()
	mine, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		t.Fatalf("loopfs: %v", err)
	}
	machine, err := os.Readlink("/proc/self/ns/mnt") // the main thread's; see nstest.Main
	if err != nil {
		t.Fatalf("loopfs: %v", err)
	}
	if mine == machine {
		t.Fatal("loopfs: in the machine's mount namespace; call nstest.New or nstest.NewMount first")
	}
}

// releaseTime is how long the kernel may take to tear down a namespace that held
// the mount; it does so behind the exit of its last process.
const releaseTime = 10 * time.Second

// released waits until the device has let go of the image.
func released(device, image string) error {
	for end := time.Now().Add(releaseTime); ; time.Sleep(5 * time.Millisecond) {
		busy, err := backs(device, image)
		if err != nil || !busy {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is still in use", device)
		}
	}
}
