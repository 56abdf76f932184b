package initd

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

// commandsDir keeps the root of the view's cgroup for PID 1 alone: a controller
// can only be handed down from a group that holds no processes but one that
// will move.
const commandsDir = "/sys/fs/cgroup/commands"

// children are the processes that a session waits for.
type children struct {
	mu   sync.Mutex
	wait map[int]chan syscall.WaitStatus
	// begun says that there is a child again.
	begun chan struct{}
}

// startReaper reaps every child there ever is, and tells the sessions of theirs.
// It waits in the kernel while there are children: a signal would come by way of
// two more goroutines. Without any, the next is one that is started, or an orphan.
func (s *server) startReaper() {
	s.children.wait = map[int]chan syscall.WaitStatus{}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGCHLD)
	s.children.begun = make(chan struct{}, 1)
	go func() {
		for {
			err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if err == unix.ECHILD {
				select {
				case <-c:
				case <-s.children.begun:
				}
				continue
			}
			for s.children.reap() {
			}
		}
	}()
}

// reap reaps one child and reports whether there was one.
func (c *children) reap() bool {
	// A command is forked and registered under the same lock, or its end could be
	// taken before anybody waits for it.
	c.mu.Lock()
	defer c.mu.Unlock()
	var ws syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
	if err == syscall.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if done, ok := c.wait[pid]; ok {
		delete(c.wait, pid)
		done <- ws
	}
	return true
}

// start runs a command and returns its pid and the channel of its end.
func (c *children) start(cmd *rawfork.Command) (int, <-chan syscall.WaitStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pid, err := cmd.Start()
	if err != nil {
		return 0, nil, err
	}
	done := make(chan syscall.WaitStatus, 1)
	c.wait[pid] = done
	select {
	case c.begun <- struct{}{}:
	default:
	}
	return pid, done, nil
}

// signal sends a signal to the process group of a command that was not reaped
// yet; afterwards its number may be another's.
func (c *children) signal(pid int, sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.wait[pid]; ok {
		syscall.Kill(-pid, sig)
	}
}

// killSession kills what is left of a command's session.
func killSession(sid int) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue
		}
		// "pid (comm) state ppid pgrp session …"; comm may hold anything.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) > 3 && string(f[3]) == strconv.Itoa(sid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// commandGroup makes the cgroup of commands, where there is a hierarchy to make
// it in; the last view's is still there after a rebuild.
func commandGroup() bool {
	err := os.Mkdir(commandsDir, 0o755)
	return err == nil || errors.Is(err, fs.ErrExist)
}

// openGroup returns its descriptor, or -1. It is opened for each command: PID 1
// keeps no path open. Whoever unmounted the hierarchy inside just gets no group.
func (s *server) openGroup() int {
	if !s.grouped {
		return -1
	}
	fd, err := unix.Open(commandsDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}
