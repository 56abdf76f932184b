package deadfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

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

// Check wants an answer from the filesystem that a directory is on.
func Check(dir string) error {
	if !ready.Load() {
		return errors.New("cannot be asked by this program")
	}
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{Argv0, dir}, Dir: "/", Env: []string{},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
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
		_ = c.Process.Kill() // it dies when the server answers or is gone
		go c.Wait()
		return ErrSilent
	}
	if werr := c.Wait(); werr != nil {
		return fmt.Errorf("look at it: %s", said[:max(n, 0)])
	}
	return nil
}
