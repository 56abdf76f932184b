package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The limits of one frame. A command line with its environment may take 2 MiB
// (ARG_MAX at the default stack limit of execve(2)).
const (
	maxFrame = 8 << 20
	maxFiles = 8
)

// Conn is one end of a stream socket. Send may be called from several
// goroutines, Recv from one.
type Conn struct {
	f  *os.File
	rc syscall.RawConn
	mu sync.Mutex
}

// New takes over fd, which must be a stream socket.
func New(fd int) (*Conn, error) {
	unix.CloseOnExec(fd)
	// Only a descriptor that is non-blocking when os.NewFile sees it is given to
	// the poller; a blocking one would pin a thread per idle connection.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set socket non-blocking: %w", err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("use socket: %w", err)
	}
	return &Conn{f: f, rc: rc}, nil
}

// Pair returns a connection and the descriptor of its other end, which is
// close-on-exec and belongs to the caller.
func Pair() (*Conn, int, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("make socket pair: %w", err)
	}
	c, err := New(p[0])
	if err != nil {
		unix.Close(p[1])
		return nil, -1, err
	}
	return c, p[1], nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.f.Close() }

// SetDeadline bounds every later Send and Recv.
func (c *Conn) SetDeadline(t time.Time) error { return c.f.SetDeadline(t) }

// Control runs f with the descriptor.
func (c *Conn) Control(f func(fd int)) error {
	return c.rc.Control(func(fd uintptr) { f(int(fd)) })
}

// HungUp waits until the other end is closed, or this one. It takes nothing
// from the stream, which another process may be reading.
func (c *Conn) HungUp() {
	_ = c.rc.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd)}} // a hang-up is always reported
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0
	})
}

// Encode makes one frame: v as JSON, body as it is.
func Encode(v any, body []byte) ([]byte, error) {
	head, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(head)+len(body) > maxFrame {
		return nil, fmt.Errorf("encode frame: %w", syscall.E2BIG)
	}
	buf := make([]byte, 8, 8+len(head)+len(body))
	binary.LittleEndian.PutUint32(buf, uint32(len(head)))
	binary.LittleEndian.PutUint32(buf[4:], uint32(len(body)))
	return append(append(buf, head...), body...), nil
}

// Send encodes and writes one frame, fds beside its first byte.
func (c *Conn) Send(v any, body []byte, fds ...int) error {
	frame, err := Encode(v, body)
	if err != nil {
		return err
	}
	return c.Write(frame, fds...)
}

// Write writes one encoded frame, fds beside its first byte.
func (c *Conn) Write(frame []byte, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(frame) > 0 {
		var n int
		var serr error
		err := c.rc.Write(func(fd uintptr) bool {
			n, serr = unix.SendmsgN(int(fd), frame, rights, nil, unix.MSG_NOSIGNAL)
			return serr != unix.EAGAIN
		})
		if err := errors.Join(err, serr); err != nil {
			return fmt.Errorf("send frame: %w", err)
		}
		frame, rights = frame[n:], nil
	}
	return nil
}

// Recv reads one frame into v and returns its body and descriptors, which are
// close-on-exec and belong to the caller, also when an error is returned with
// none. At the end of the stream the error is [io.EOF].
func (c *Conn) Recv(v any) (body []byte, fds []int, err error) {
	defer func() {
		if err != nil {
			CloseAll(fds)
			fds = nil
		}
	}()
	var lens [8]byte
	fds, err = c.first(lens[:])
	if err != nil {
		return nil, fds, err
	}
	head, size := binary.LittleEndian.Uint32(lens[:]), binary.LittleEndian.Uint32(lens[4:])
	if uint64(head)+uint64(size) > maxFrame {
		return nil, fds, errors.New("receive frame: too long")
	}
	buf := make([]byte, head+size)
	if _, err := io.ReadFull(c.f, buf); err != nil {
		return nil, fds, fmt.Errorf("receive frame: %w", err)
	}
	if err := json.Unmarshal(buf[:head], v); err != nil {
		return nil, fds, fmt.Errorf("decode frame: %w", err)
	}
	return buf[head:], fds, nil
}

// first fills b and collects the descriptors sent with its first byte.
func (c *Conn) first(b []byte) ([]int, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	var n, on, flags int
	var serr error
	err := c.rc.Read(func(fd uintptr) bool {
		n, on, flags, _, serr = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
		return serr != unix.EAGAIN
	})
	if err := errors.Join(err, serr); err != nil {
		return nil, fmt.Errorf("receive frame: %w", err)
	}
	if n == 0 {
		return nil, io.EOF
	}
	var fds []int
	if msgs, err := unix.ParseSocketControlMessage(oob[:on]); err == nil {
		for i := range msgs {
			if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return fds, errors.New("receive frame: too many descriptors")
	}
	if _, err := io.ReadFull(c.f, b[n:]); err != nil {
		return fds, fmt.Errorf("receive frame: %w", err)
	}
	return fds, nil
}

// CloseAll closes descriptors that arrived with a frame.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
