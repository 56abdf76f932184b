package client

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// drain is how long output that the command left in its terminal may take to
// come out when something else still has the terminal open.
const drain = 100 * time.Millisecond

// tty joins the caller's terminal and the command's.
type tty struct {
	master *os.File
	in     *os.File // the caller's terminal as input, or nil
	out    *os.File
	// changed is the descriptor whose settings are to be put back.
	changed int
	saved   *unix.Termios
	wake    int // eventfd that ends the input
	done    chan struct{}
}

// openTTY takes over the master and starts to copy.
func openTTY(master int, files [3]*os.File, is [3]bool) (*tty, error) {
	if err := unix.SetNonblock(master, true); err != nil {
		return nil, fmt.Errorf("use terminal of the view: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("use terminal of the view: %w", err)
	}
	t := &tty{master: os.NewFile(uintptr(master), "terminal"), wake: wake, done: make(chan struct{})}
	switch { // the descriptor the caller looks at
	case is[1]:
		t.out = files[1]
	case is[2]:
		t.out = files[2]
	default:
		t.out = files[0]
	}
	if is[0] {
		t.in = files[0]
		t.change(t.in, func(a *unix.Termios) { // as cfmakeraw(3)
			a.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
			a.Oflag &^= unix.OPOST
			a.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
			a.Cflag = a.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
			a.Cc[unix.VMIN], a.Cc[unix.VTIME] = 1, 0
		})
		go t.copyIn()
	} else { // the command's terminal has made its lines already
		t.change(t.out, func(a *unix.Termios) { a.Oflag &^= unix.OPOST })
	}
	go t.copyOut()
	return t, nil
}

// change sets up the caller's terminal until close. With the keys raw, the
// command's terminal gives them their meaning. In the background a change would
// stop us, so nothing is changed there.
func (t *tty) change(f *os.File, how func(*unix.Termios)) {
	fd := int(f.Fd())
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		return
	}
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return
	}
	set := *old
	how(&set)
	if unix.IoctlSetTermios(fd, unix.TCSETSW, &set) == nil {
		t.changed, t.saved = fd, old
	}
}

// resize gives the command's terminal the size of the caller's.
func (t *tty) resize() {
	size, err := unix.IoctlGetWinsize(int(t.out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	rc, err := t.master.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
}

// copyIn reads only when something is there, so that no key typed after the end
// is taken from the caller's shell.
func (t *tty) copyIn() {
	fd := int32(t.in.Fd())
	buf := make([]byte, 4096)
	for {
		p := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}, {Fd: int32(t.wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || p[1].Revents != 0 {
			return
		}
		n, err := t.in.Read(buf)
		if n > 0 {
			if _, err := t.master.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			t.master.Write([]byte{4}) // end of transmission
			return
		}
	}
}

func (t *tty) copyOut() {
	defer close(t.done)
	buf := make([]byte, 32<<10)
	for {
		// EIO says that nobody has the other side open any more.
		n, err := t.master.Read(buf)
		if n > 0 {
			if _, err := t.out.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// close takes what output is left and gives the caller's terminal back.
func (t *tty) close() {
	unix.Write(t.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	_ = t.master.SetReadDeadline(time.Now().Add(drain))
	<-t.done
	t.master.Close()
	if t.saved != nil {
		_ = unix.IoctlSetTermios(t.changed, unix.TCSETSW, t.saved)
	}
	// The eventfd stays open: the input may be about to look at it, and the
	// process is about to end.
}
