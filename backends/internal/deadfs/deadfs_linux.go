package deadfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Argv0 makes the running program look at a directory when it is re-executed.
const Argv0 = "netsandbox-look"

// patience is how long the answer may take.
const patience = 2 * time.Second

// ErrSilent: there was no answer.
var ErrSilent = errors.New("does not answer")

// ready: this program looks when it is re-executed.
var ready atomic.Bool

// Main looks, and does not return, when the program was re-executed for it.
// Otherwise it only notes that it would. It is called first in a program.
func Main() {
	ready.Store(true)
	if len(os.Args) != 2 || os.Args[0] != Argv0 {
		return
	}
	// Opened to be read, because that, unlike a look at the name, needs the server.
	fd, err := unix.Open(os.Args[1], unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil {
		_, err = unix.ReadDirent(fd, make([]byte, 4096))
	}
	if err != nil {
		fmt.Print(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// silence is how long a directory that gave no answer is not asked again.
var silence = 30 * time.Second

// asked holds when directories gave no answer.
var asked = struct {
	sync.Mutex
	silent map[string]time.Time
}{silent: map[string]time.Time{}}

// Check wants an answer from the filesystem that a directory is on.
func Check(dir string) error {
	asked.Lock()
	defer asked.Unlock()
	if at, ok := asked.silent[dir]; ok && time.Since(at) < silence {
		return ErrSilent
	}
	delete(asked.silent, dir)
	err := check(dir)
	if errors.Is(err, ErrSilent) {
		asked.silent[dir] = time.Now()
	}
	return err
}

// Remember notes that somebody else had no answer.
func Remember(dir string) {
	asked.Lock()
	defer asked.Unlock()
	asked.silent[dir] = time.Now()
}

func check(dir string) error {
	if !ready.Load() {
		return errors.New("cannot be asked by this program")
	}
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{Argv0, dir}, Dir: "/", Env: []string{},
		// In a mount namespace of its own: what is mounted later where the caller is
		// must not stay mounted with a process that hangs.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS},
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	c.Stdout = w
	err = c.Start()
	w.Close()
	if err != nil {
		return fmt.Errorf("look in a process of its own: %w", err)
	}
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	said := make([]byte, 256)
	n, err := r.Read(said)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		Abandon(c)
		return ErrSilent
	}
	if werr := c.Wait(); werr != nil {
		return fmt.Errorf("look at it: %s", said[:max(n, 0)])
	}
	return nil
}

// Abandon leaves a process behind that hangs. It dies when the server answers or
// is gone, and is moved out of the caller's control groups: they could not be
// removed before that. Best effort: the top of a hierarchy may not be ours.
func Abandon(c *exec.Cmd) {
	_ = c.Process.Kill()
	go func() { _ = c.Wait() }()
	groups, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.FSType != "cgroup" && m.FSType != "cgroup2", false
	})
	if err != nil {
		return
	}
	for _, g := range groups {
		_ = os.WriteFile(filepath.Join(g.Mountpoint, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0) //nolint:forbidigo // a control group's, which is no file of the host
	}
}
