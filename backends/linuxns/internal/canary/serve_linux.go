package canary

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Serve takes one probe from the other end of the socket, runs it, and answers.
// The end of the socket ends it and the probe.
// The caller is PID 1 of the canary's view and ends right after, which ends
// everything the probe started.
//
// Preconditions: mounts are done, [Drop] was called on this goroutine, and the
// filter of the mode is on; nothing else in the process waits for children.
func Serve(c *wire.Conn, mode harden.Mode) error {
	var j job
	_, fds, err := c.Recv(&j)
	if err != nil {
		return fmt.Errorf("receive probe: %w", err)
	}
	wire.CloseAll(fds)
	go func() {
		c.HungUp() // nobody waits for the answer any more
		os.Exit(1)
	}()
	begun := time.Now()
	var rep report
	if len(j.Argv) == 0 {
		rep = dial(j)
	} else {
		rep = watched(j, begun.Add(j.Timeout), mode)
	}
	rep.Took = time.Since(begun)
	return c.Send(rep, nil)
}

// watched runs the command and sees what it asks for, if that is wanted. A kernel
// that cannot say so (before Linux 5.0) is not asked.
func watched(j job, deadline time.Time, mode harden.Mode) report {
	if !j.Watch {
		return run(j, deadline, mode, nil)
	}
	w, err := harden.WatchEchoes()
	if errors.Is(err, unix.EINVAL) {
		return run(j, deadline, mode, nil)
	}
	if err != nil {
		return failed(err.Error())
	}
	defer w.Close()
	rep := run(j, deadline, mode, w)
	rep.Asked.Ping, rep.Asked.Raw = w.Asked()
	return rep
}

// run starts the command and waits for it, for its output, and for its time to
// be up, all in one loop.
func run(j job, deadline time.Time, mode harden.Mode, watch *harden.Echoes) report {
	r, w, err := outputPipe()
	if err != nil {
		return failed(err.Error())
	}
	defer unix.Close(r)
	pid, rep := start(j, w, mode)
	unix.Close(w)
	if pid == 0 {
		return rep
	}
	child, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return failed(fmt.Sprintf("watch the command: %v", err))
	}
	defer unix.Close(child)

	kept := output{}
	for {
		left := time.Until(deadline)
		if left <= 0 {
			kept.drain(r)
			return report{Exit: -1, TimedOut: true, Output: kept.head}
		}
		// What is negative is not looked at.
		fds := []unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}, {Fd: int32(r), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
		if kept.closed {
			fds[1].Fd = -1 // a closed pipe is always ready
		}
		if watch != nil {
			fds[2].Fd = int32(watch.FD())
		}
		// Orphans come to PID 1 without a descriptor to tell of them: look for
		// them now and then, or a long probe could fill the process table.
		if _, err := unix.Poll(fds, int(min(left, time.Second).Milliseconds())+1); err != nil && err != unix.EINTR {
			return failed(fmt.Sprintf("wait for the command: %v", err))
		}
		if fds[2].Revents&unix.POLLIN != 0 {
			if err := watch.Next(); err != nil {
				return failed(err.Error())
			}
		}
		kept.read(r)
		if status, ended := reap(pid); ended {
			// Everything the command wrote is in the pipe by now. Its end is not
			// waited for: a child left behind may hold it open for good.
			kept.drain(r)
			return ending(status, kept.head)
		}
	}
}

func ending(status unix.WaitStatus, out []byte) report {
	if status.Signaled() {
		return report{Exit: -1, Signal: int(status.Signal()), Output: out}
	}
	return report{Exit: status.ExitStatus(), Output: out}
}

func failed(why string) report { return report{Exit: -1, Err: why} }

// reap collects every child that has ended and reports the status of pid when
// it was among them.
func reap(pid int) (status unix.WaitStatus, ended bool) {
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || got <= 0 {
			return status, ended
		}
		if got == pid {
			status, ended = ws, true
		}
	}
}

// outputPipe returns a pipe whose read end does not block. Its mode lets the
// probe open /dev/stderr again under its own uid, as shell scripts do.
func outputPipe() (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, fmt.Errorf("make a pipe for output: %w", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		return 0, 0, fmt.Errorf("make a pipe for output: %w", err)
	}
	if err := unix.Fchmod(p[1], 0o666); err != nil {
		return 0, 0, fmt.Errorf("make a pipe for output: %w", err)
	}
	return p[0], p[1], nil
}

// output keeps the first bytes of a stream.
type output struct {
	head   []byte
	closed bool
}

// read takes what is there, once, and reports whether it was anything.
func (o *output) read(fd int) bool {
	buf := make([]byte, 16<<10)
	n, err := unix.Read(fd, buf)
	switch {
	case n > 0:
		o.head = append(o.head, buf[:min(n, maxOutput-len(o.head))]...)
		return true
	case err == nil:
		o.closed = true
	}
	return false
}

// drain takes what is there, up to a pipe's capacity: more is being written by
// what the command left behind.
func (o *output) drain(fd int) {
	for range 64 {
		if len(o.head) == maxOutput || !o.read(fd) {
			return
		}
	}
}
