package wire

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// at names a socket below dir by a short path: sun_path holds 108 bytes and a
// state directory may be deeper than that.
func at(dir *os.File, name string) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name}
}

// Dial connects to the socket called name in the directory at path.
func Dial(path, name string) (*Conn, error) {
	dir, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open environment directory: %w", err)
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	if err := unix.Connect(fd, at(dir, name)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to holder: %w", err)
	}
	return New(fd)
}

// errDied: nobody listens who did just now.
var errDied = errors.New("the holder has just died")

// DialAgain connects as [Dial] does to somebody who was there just now.
func DialAgain(path, name string) (*Conn, error) {
	c, err := Dial(path, name)
	if Refused(err) {
		err = fmt.Errorf("%w: %w", errDied, err)
	}
	return c, err
}

// Refused reports an error of [Dial] that means that nobody listens.
func Refused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}

// Unheard reports an error of connecting or talking to a peer that ended before it
// had read anything. A listening process that is killed takes connections until its
// sockets are closed; those are reset then, as is one that is closed over unread
// data. One whose peer has read ends with [io.EOF].
func Unheard(err error) bool {
	return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, errDied)
}

// Listener is a listening socket with a name.
type Listener struct{ c *Conn }

// Listen binds the socket called name in the directory at path, replacing what
// a dead process left, and gives it the mode.
func Listen(path, name string, mode uint32) (*Listener, error) {
	dir, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open environment directory: %w", err)
	}
	defer dir.Close()
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && err != unix.ENOENT {
		return nil, fmt.Errorf("remove old socket %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	c, err := New(fd)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, at(dir, name))
	if err == nil {
		err = unix.Fchmodat(int(dir.Fd()), name, mode, 0)
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: %w", name, err)
	}
	return &Listener{c}, nil
}

// Accept waits for the next connection.
func (l *Listener) Accept() (*Conn, error) {
	var fd int
	var aerr error
	err := l.c.rc.Read(func(s uintptr) bool {
		fd, _, aerr = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		return aerr != unix.EAGAIN
	})
	if err == nil {
		err = aerr
	}
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	return New(fd)
}

// Close stops listening.
func (l *Listener) Close() error { return l.c.Close() }

// Peer returns who is at the other end, as the kernel recorded it at connect.
// It must be asked outside the view: ids of the host are not mapped inside.
func (c *Conn) Peer() (Caller, error) {
	var who Caller
	var err error
	cerr := c.Control(func(fd int) {
		var u *unix.Ucred
		if u, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		who.UID, who.GID, who.PID = u.Uid, u.Gid, int(u.Pid)
		who.Groups, err = peerGroups(fd)
	})
	if cerr != nil {
		err = cerr
	}
	if err != nil {
		return Caller{}, fmt.Errorf("read peer credentials: %w", err)
	}
	return who, nil
}

func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 64)
	for {
		size := uint32(len(groups) * 4)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno == unix.ERANGE { // the kernel stored the size that it needs
			groups = make([]uint32, size/4)
			continue
		}
		if errno != 0 {
			return nil, errno
		}
		return groups[:size/4], nil
	}
}
