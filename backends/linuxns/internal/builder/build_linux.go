package builder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/initd"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

// Request is the shape of a view. Descriptors stay the caller's.
type Request struct {
	Dir       envdir.Dir
	StateRoot string
	Hide      []string
	Secrets   *backends.Secrets
	Mode      harden.Mode
	User      int // the user namespace to put it in, or -1 where the mode has none
	Net       int // the network namespace to put it in, or -1
	NewNet    bool
	// Cgroup is where PID 1 is born, or -1.
	Cgroup int
	Exe    int // the program to run as PID 1
	Socket int // PID 1's end of the socket to the holder

	// Merged is the mount namespace that an earlier [Build] returned. When it is
	// given, the layers lie on the merged mounts of that view instead of on the
	// host's, and its /run is shown.
	Merged *os.File
	// Throwaway puts the uppers on a tmpfs that ends with the view.
	Throwaway bool
	// Run is a detached /run of an earlier build to go on with, or -1.
	Run int
	// Silent lists mounts, by device and place, that did not answer an earlier
	// build: they are asked for less long, and not every time.
	Silent []string
}

// View is a built view. PID is a child of the calling process that must be
// waited for. MountNS is the builder's mount namespace, in which the mounts are
// not locked; it must be closed before the same uppers are mounted again.
type View struct {
	PID      int
	MountNS  *os.File
	Mounts   []backends.Mount
	Resolver map[string]string // the resolver's files in a new /run, by path
	Notes    []string
	Silent   []string // mounts that did not answer
}

// Abandon takes the view down again.
func (v *View) Abandon() {
	v.MountNS.Close()
	kill(v.PID)
}

// kill ends a PID 1 and everything in its namespace, and waits for that.
func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
		p.Wait()
	}
}

// build is the state of one run.
type build struct {
	Request
	self    *os.File // the mount namespace being filled
	table   []mountplan.Mount
	scratch int // where pieces are put together; gone with the old root
	root    int // the view's root, attached in scratch
	view    View
	// redacted marks the hidden paths of which a copy is shown.
	redacted map[string]bool
}

func (b *build) run() (_ *View, err error) {
	b.scratch, b.root = -1, -1
	defer func() {
		for _, fd := range []int{b.scratch, b.root} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
		if err != nil && b.self != nil {
			b.self.Close()
		}
	}()
	if err := b.enter(); err != nil {
		return nil, fmt.Errorf("prepare mount namespace: %w", err)
	}
	if err := b.lasting(); err != nil {
		return nil, err
	}
	plan, err := b.plan()
	if err != nil {
		return nil, err
	}
	if err := b.tree(plan); err != nil {
		return nil, err
	}
	if err := b.system(plan); err != nil {
		return nil, err
	}
	if err := b.start(); err != nil {
		return nil, err
	}
	b.view.MountNS = b.self
	return &b.view, nil
}

// enter gives the thread a mount namespace and a scratch directory.
func (b *build) enter() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := b.peel(); err != nil {
		return err
	}
	// Through /proc of the host, which the new root will hide.
	self, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	b.self = self
	place, err := unix.Open(b.Dir.Path(envdir.Build), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open scratch directory: %w", err)
	}
	defer unix.Close(place)
	t, err := mounts.Tmpfs(0, 0, "755", b.bounds()...)
	if err != nil {
		return err
	}
	if b.scratch, err = unix.Openat(t, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		unix.Close(t)
		return err
	}
	return mounts.Attach(t, place)
}

// lasting notes a state directory that a reboot empties.
func (b *build) lasting() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(string(b.Dir), &fs); err != nil {
		return fmt.Errorf("look at environment's directory: %w", err)
	}
	if fs.Type == unix.TMPFS_MAGIC {
		b.view.Notes = append(b.view.Notes, "the state directory is in memory (tmpfs): the environment does not survive a reboot")
	}
	return nil
}

// peel reads the mount table and takes off what is mounted on top of the root
// directory. A host does not see it, but it would end up on top of the view's
// root, and whoever joins the view's mount namespace starts on what is topmost.
func (b *build) peel() (err error) {
	if b.table, err = mountplan.Read(); err != nil {
		return err
	}
	for range mountplan.OnRoot(b.table) {
		if err := unix.Unmount("/", unix.MNT_DETACH); err != nil {
			return fmt.Errorf("take off what is mounted on the root directory: %w", err)
		}
	}
	return nil
}

// start forks PID 1, mounts what shows its namespaces, makes the tree its root
// and waits until it serves.
func (b *build) start() error {
	gate, open, err := os.Pipe()
	if err != nil {
		return err
	}
	defer open.Close()
	status, tell, err := os.Pipe()
	if err != nil {
		gate.Close()
		return err
	}
	defer status.Close()
	// Its working directory must be one that pivot_root carries along.
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("leave scratch directory: %w", err)
	}
	in := rawfork.Init{
		Cgroup: b.Cgroup, User: b.User, Net: b.Net, NewNet: b.NewNet, Exe: b.Exe,
		Argv: []string{initd.Argv0}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", runtimeTuning},
		Socket: b.Socket, Status: int(tell.Fd()), Gate: int(gate.Fd()),
	}
	if b.Mode.UserNS() {
		in.Drop = b.Mode.Drop
	}
	pid, err := in.Start()
	gate.Close()
	tell.Close()
	if err != nil {
		return err
	}
	b.view.PID = pid
	if err := b.raise(status, open); err != nil {
		kill(pid)
		return err
	}
	return nil
}

// runtimeTuning keeps the Go runtime of PID 1 from holding the host's cgroup
// files open to follow its CPU limit: they would be within reach as
// /proc/1/fd/N.
const runtimeTuning = "GODEBUG=containermaxprocs=0,updatemaxprocs=0"

func (b *build) raise(status, open *os.File) error {
	if _, err := io.ReadFull(status, make([]byte, 1)); err != nil {
		rest, _ := io.ReadAll(status)
		return fmt.Errorf("start init: %w", rawfork.ReadStatus(rest))
	}
	if err := b.kernelViews(); err != nil {
		return err
	}
	if err := unix.Fchdir(b.root); err != nil {
		return fmt.Errorf("enter the view's root: %w", err)
	}
	// The root of every thread in this mount namespace follows, PID 1's too.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the host's tree: %w", err)
	}
	if err := topmost(); err != nil {
		return err
	}
	if _, err := open.Write([]byte{'1'}); err != nil {
		return fmt.Errorf("let init go on: %w", err)
	}
	said, err := io.ReadAll(status)
	if err != nil {
		return fmt.Errorf("wait for init: %w", err)
	}
	if err := rawfork.ReadStatus(said); err != nil {
		return fmt.Errorf("start init: %w", err)
	}
	return nil
}

// topmost makes sure that nothing is on top of the view's root: ".." of a root
// directory leads onto what is.
func topmost() error {
	var at, on unix.Statx_t
	for path, st := range map[string]*unix.Statx_t{"/": &at, "/..": &on} {
		if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, st); err != nil {
			return fmt.Errorf("look at the view's root: %w", err)
		}
	}
	if at.Mnt_id != on.Mnt_id {
		return errors.New("the host's tree is still mounted on the view's root")
	}
	return nil
}

// join moves the thread into namespaces of PID 1. Its children are then born
// into PID 1's pid namespace; the thread itself stays where it is.
func (b *build) join() error {
	kinds := map[string]int{"cgroup": unix.CLONE_NEWCGROUP, "pid": unix.CLONE_NEWPID}
	if b.Net >= 0 || b.NewNet {
		kinds["net"] = unix.CLONE_NEWNET
	}
	for name, flag := range kinds {
		fd, err := unix.Open("/proc/"+strconv.Itoa(b.view.PID)+"/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s namespace of init: %w", name, err)
		}
		err = unix.Setns(fd, flag)
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("enter %s namespace of init: %w", name, err)
		}
	}
	return nil
}

// kernelViews mounts proc, sysfs and the cgroup tree.
func (b *build) kernelViews() error {
	if err := b.join(); err != nil {
		return err
	}
	dir, err := mounts.Place(b.root, "proc", false)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := rawfork.MountKernel(rawfork.KernelFS{Type: "proc", Dir: dir, Flags: plain}); err != nil {
		return err
	}
	const attrs = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if err := b.put("sys", func() (int, error) { return mounts.New("sysfs", attrs|unix.MOUNT_ATTR_RDONLY) }); err != nil {
		return err
	}
	if b.Cgroup < 0 || !b.Mode.UserNS() {
		return nil
	}
	return b.put("sys/fs/cgroup", func() (int, error) { return mounts.New("cgroup2", attrs) })
}

// put attaches a new mount at a path of the view. A place that the view does
// not have is passed over: it is no place to look for anything either.
func (b *build) put(path string, tree func() (int, error)) error {
	place, err := mounts.Place(b.root, path, false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(place)
	t, err := tree()
	if err != nil {
		return err
	}
	return mounts.Attach(t, place)
}

// plan decides from the mount table of the host.
func (b *build) plan() (mountplan.Plan, error) {
	p, err := mountplan.Make(b.table, b.StateRoot, b.conceal(), func(point string) bool {
		return b.holds(mountplan.Key(point))
	})
	if err != nil {
		return p, fmt.Errorf("plan mounts: %w", err)
	}
	return p, nil
}
