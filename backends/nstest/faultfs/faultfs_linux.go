package faultfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// Kind is a filesystem with what it needs.
type Kind struct {
	Name string
	Size int64
	Mkfs []string // program and options; the image follows
	Data string   // mount options
}

// The kinds, as hosts have them. Ext4 is as distributions make it: an error in
// the data is the writer's business, an error in the journal ends all writing.
var (
	Ext4  = Kind{"ext4", 64 << 20, []string{"mkfs.ext4", "-q", "-F", "-N", "1536", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, "errors=remount-ro"}
	XFS   = Kind{"xfs", 300 << 20, []string{"mkfs.xfs", "-q", "-f"}, "nodiscard"}
	Btrfs = Kind{"btrfs", 256 << 20, []string{"mkfs.btrfs", "-q", "-f"}, "nodiscard"}
)

// FS is a mounted filesystem on a device that fails on demand. Its methods end
// the test when they cannot do what they say.
type FS struct {
	Dir  string // where it is mounted
	Kind Kind

	t       testing.TB
	image   *os.File // the one file of the FUSE filesystem
	loop    *os.File // the device over it, closed while nothing is mounted
	control *os.File
	server  *exec.Cmd
	exited  chan error
	mounted bool
}

// New makes and mounts a filesystem in the calling thread's mount namespace,
// which must be the test's own. It is gone with the test.
func New(t testing.TB, kind Kind) *FS {
	t.Helper()
	f := &FS{Dir: t.TempDir(), Kind: kind, t: t, exited: make(chan error, 1)}
	t.Cleanup(f.close)
	f.must("start the device", f.start())
	f.must("mount", f.mount())
	return f
}

func (f *FS) must(what string, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("faultfs: %s: %v", what, err)
	}
}

// start makes the image and its server.
func (f *FS) start() error {
	memory, err := f.mkfs()
	if err != nil {
		return err
	}
	defer memory.Close()
	conn, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	// Mounted before it is served: reading a connection that is not mounted is an
	// error. Ours is closed before the first request waits for an answer: with the
	// server's death the last descriptor goes, and every request ends.
	root, err := mountFUSE(conn)
	if err == nil {
		defer root.Close()
		err = f.serve(conn, memory)
	}
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	fd, err := unix.Openat(int(root.Fd()), imageName, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	f.image = os.NewFile(uintptr(fd), imageName)
	return nil
}

// mkfs makes the filesystem in memory: no disk of the machine is worn out, and no
// error of its own gets between.
func (f *FS) mkfs() (*os.File, error) {
	fd, err := unix.MemfdCreate("faultfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	image := os.NewFile(uintptr(fd), "image")
	if err := image.Truncate(f.Kind.Size); err != nil {
		return nil, errors.Join(err, image.Close())
	}
	cmd := exec.Command(f.Kind.Mkfs[0], append(f.Kind.Mkfs[1:len(f.Kind.Mkfs):len(f.Kind.Mkfs)], "/proc/self/fd/3")...)
	cmd.ExtraFiles = []*os.File{image}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w: %s", f.Kind.Mkfs[0], err, out), image.Close())
	}
	return image, nil
}

// serve starts the server, from a goroutine that is in none of the test's
// namespaces.
func (f *FS) serve(conn, image *os.File) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	f.control = os.NewFile(uintptr(pair[0]), "control")
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	f.server = exec.Command("/proc/self/exe")
	f.server.Env = append(os.Environ(), serverEnv+"=1")
	f.server.Stderr = os.Stderr
	f.server.ExtraFiles = []*os.File{conn, image, theirs}
	f.server.Dir = "/"
	started := make(chan error)
	go func() {
		err := f.server.Start()
		started <- err
		if err == nil {
			f.exited <- f.server.Wait()
		}
	}()
	return <-started
}

func (f *FS) mount() (err error) {
	if f.loop, err = loopfs.Attach(f.image, false); err != nil {
		return err
	}
	if err := unix.Mount(f.loop.Name(), f.Dir, f.Kind.Name, 0, f.Kind.Data); err != nil {
		return fmt.Errorf("mount %s: %w", f.Kind.Name, err)
	}
	f.mounted = true
	return nil
}

func (f *FS) tell(c command) status {
	f.t.Helper()
	var r response
	err := json.NewEncoder(f.control).Encode(c)
	if err == nil {
		err = json.NewDecoder(f.control).Decode(&r)
	}
	if err == nil && r.Err != "" {
		err = errors.New(r.Err)
	}
	f.must("tell the device", err)
	return r.Status
}

// Fail makes requests of the device fail with EIO from now on.
func (f *FS) Fail(ops Op) { f.t.Helper(); f.tell(command{Set: &rule{Ops: ops}}) }

// FailOnce makes times requests fail after so many have succeeded; everything
// after them succeeds again.
func (f *FS) FailOnce(ops Op, after, times int) {
	f.t.Helper()
	f.tell(command{Set: &rule{Ops: ops, After: after, Times: times}})
}

// Cut takes the device's power away: what was not flushed is lost, and every
// request fails until [FS.Heal].
func (f *FS) Cut() { f.t.Helper(); f.tell(command{Cut: true}) }

// Heal makes the device work again. The filesystem above may have given up
// meanwhile; [FS.Remount] is what a reboot is to it.
func (f *FS) Heal() { f.t.Helper(); f.tell(command{Heal: true}) }

// Failed returns how many requests failed so far.
func (f *FS) Failed() int { f.t.Helper(); return f.tell(command{}).Failed }

// Count returns how many requests of a kind the device got so far.
func (f *FS) Count(op Op) int {
	f.t.Helper()
	s, n := f.tell(command{}), 0
	for i, r := range s.Requests {
		if op&(1<<i) != 0 {
			n += r
		}
	}
	return n
}

// Sync writes everything out.
func (f *FS) Sync() {
	f.t.Helper()
	f.must("sync", f.sync())
}

func (f *FS) sync() error {
	fd, err := unix.Open(f.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// Remount heals the device and mounts the filesystem anew. Everything that was
// only in memory of the kernel and could not be written is lost, as it would be
// on a reboot.
func (f *FS) Remount() {
	f.t.Helper()
	f.must("unmount", f.unmount())
	f.Heal()
	f.must("remount", f.mount())
}

// patience bounds waiting for what takes milliseconds on a quiet machine.
const patience = 20 * time.Second

// unmount waits for those who are about to leave: what uses a file, and every
// copy of the mount in a namespace that is being taken down. Until the last one
// is gone the next mount would be of the same superblock, errors and all.
func (f *FS) unmount() error {
	if !f.mounted {
		return nil
	}
	if err := patiently(func() error { return unix.Unmount(f.Dir, 0) }); err != nil {
		return fmt.Errorf("unmount %s: %w", f.Dir, err)
	}
	f.mounted = false
	err := patiently(func() error {
		fd, err := unix.Open(f.loop.Name(), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("somebody else has %s mounted: %w", f.Dir, err)
	}
	// With its last descriptor the device loses its cache, which a write that
	// failed has left with what the disk never had.
	return f.loop.Close()
}

// patiently tries until it is not busy.
func patiently(try func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if err := try(); !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
	}
}

// close takes everything away, by force where it must.
func (f *FS) close() {
	if f.mounted {
		f.Heal() // what it writes last should find its way
	}
	if f.control != nil {
		_ = f.control.Close()
	}
	if err := f.unmount(); err != nil {
		f.t.Errorf("faultfs: %v", err)
		_ = unix.Unmount(f.Dir, unix.MNT_DETACH)
	}
	for _, file := range []*os.File{f.loop, f.image} {
		if file != nil {
			_ = file.Close() // the first is closed already when all went well
		}
	}
	if f.server == nil || f.server.Process == nil {
		return
	}
	select {
	case err := <-f.exited:
		if err != nil {
			f.t.Errorf("faultfs: server: %v", err)
		}
	case <-time.After(patience):
		f.t.Error("faultfs: somebody still has the device open")
		_ = f.server.Process.Kill() // every request ends with an error now
		<-f.exited
	}
}
