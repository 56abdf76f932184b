package initd

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/idle"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// grace is what a command has between the hang-up that tells it that its client
// is gone and the end of its session.
const grace = 2 * time.Second

type server struct {
	conn     *wire.Conn
	mode     harden.Mode
	canary   bool // runs one probe instead of serving commands
	name     string
	limits   []unix.Rlimit
	grouped  bool
	children children
	idle     *idle.Timer
}

// serve takes clients from the holder until that is gone.
func (s *server) serve() {
	for {
		var who wire.Caller
		_, fds, err := s.conn.Recv(&who)
		if err != nil {
			return
		}
		if len(fds) != 1 {
			wire.CloseAll(fds)
			continue
		}
		go func() {
			conn, err := wire.New(fds[0])
			if err != nil {
				return
			}
			defer s.idle.Touch()
			defer conn.Close()
			s.session(conn, who)
		}()
	}
}

// session serves one client: one command from start to end.
func (s *server) session(conn *wire.Conn, who wire.Caller) {
	var r wire.Start
	body, fds, err := conn.Recv(&r)
	if err != nil {
		return
	}
	cmd, t, err := s.prepare(r, body, fds, who)
	if err != nil {
		wire.CloseAll(fds)
		t.close()
		conn.Send(wire.Event{Status: 125, Error: err.Error()}, nil)
		return
	}
	// The point of no return, before the command can do anything.
	if err := conn.Send(wire.Event{Accepted: true}, nil); err != nil {
		wire.CloseAll(fds)
		t.close()
		return
	}
	cmd.Cgroup = s.openGroup()
	pid, done, err := s.children.start(cmd)
	if cmd.Cgroup >= 0 {
		unix.Close(cmd.Cgroup)
	}
	wire.CloseAll(fds)
	if err != nil {
		t.close()
		status, text := explain(err, cmd)
		conn.Send(wire.Event{Status: status, Error: text}, nil)
		return
	}
	err = started(conn, r, t)
	t.close()
	if r.Detach {
		return
	}
	if err != nil {
		s.hangUp(pid, done)
		return
	}
	s.follow(conn, pid, done)
}

// started tells the client so, when it waits for it: to go away, or to get the
// command's terminal. Otherwise the end says it as well, and is one wake-up less.
func started(conn *wire.Conn, r wire.Start, t *terminal) error {
	if t == nil && !r.Detach {
		return nil
	}
	return conn.Send(wire.Event{Started: true}, nil, t.master()...)
}

// follow passes signals in and the exit status out.
func (s *server) follow(conn *wire.Conn, pid int, done <-chan syscall.WaitStatus) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			var c wire.Control
			_, fds, err := conn.Recv(&c)
			if err != nil {
				return
			}
			wire.CloseAll(fds)
			if c.Signal > 0 && c.Signal < 65 {
				s.children.signal(pid, syscall.Signal(c.Signal))
			}
		}
	}()
	select {
	case ws := <-done:
		e := wire.Event{Exited: true, Exit: ws.ExitStatus()}
		if ws.Signaled() {
			e.Exit, e.Signal = 0, int(ws.Signal())
		}
		conn.Send(e, nil)
	case <-gone:
		s.hangUp(pid, done)
	}
}

// hangUp ends a command whose client is gone. Daemons it started have sessions
// of their own and live on.
func (s *server) hangUp(pid int, done <-chan syscall.WaitStatus) {
	s.children.signal(pid, syscall.SIGHUP)
	s.children.signal(pid, syscall.SIGCONT)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		killSession(pid)
	}
}

// explain turns a failure into the status a shell would give, and a sentence.
func explain(err error, cmd *rawfork.Command) (int, string) {
	name := cmd.Argv[0]
	var step *rawfork.StepError
	if !errors.As(err, &step) {
		return 125, err.Error()
	}
	switch step.Step {
	case rawfork.StepExec:
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			if strings.Contains(name, "/") {
				return 127, fmt.Sprintf("%q: no such file or directory", name)
			}
			return 127, fmt.Sprintf("%q: command not found", name)
		}
		return 126, fmt.Sprintf("%q: cannot execute: %v", name, step.Err)
	case rawfork.StepDir:
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			return 125, fmt.Sprintf("working directory %q does not exist in the view", cmd.Dir)
		}
		return 125, fmt.Sprintf("working directory %q cannot be entered in the view: %v", cmd.Dir, step.Err)
	case rawfork.StepIdentity:
		if errors.Is(err, unix.EINVAL) {
			return 125, fmt.Sprintf("uid %d, gid %d or one of the groups has no place in the view: ids of 2147483647 and above cannot be mapped", cmd.UID, cmd.GID)
		}
		return 125, fmt.Sprintf("take uid %d, gid %d in the view: %v", cmd.UID, cmd.GID, step.Err)
	case rawfork.StepFork:
		return 125, fmt.Sprintf("start a process in the view: %v", step.Err)
	case rawfork.StepLimits:
		return 125, fmt.Sprintf("set resource limits in the view: %v", step.Err)
	}
	return 125, fmt.Sprintf("arrange descriptors in the view: %v", step.Err)
}
