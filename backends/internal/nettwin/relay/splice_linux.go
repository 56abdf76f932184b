package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/waiter"
)

// buffers are what is read from the outside. One is held only while there is
// something in it, so an idle stream holds none.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// most is what is read from the outside of a stream at once: it fits into one segment
// on its way to the twin's kernel. More would leave a crumb of a segment each time.
const most = gsoMax - header.TCPTotalHeaderMaximumSize - 1

// A few streams may have as much on its way to the twin's kernel as makes them fast,
// many must share: a hundred with a mebibyte each took 135 MB.
const (
	fewStreams  = 32
	smallBuffer = 128 << 10 // the stack doubles it
)

// share bounds what waits in a new stream.
func (r *Relay) share(ep tcpip.Endpoint) {
	if r.streams.Load() >= fewStreams {
		ep.SocketOptions().SetSendBufferSize(smallBuffer, true)
	}
}

// join copies both ways between an outer connection and a stream of the twin
// until both ended. An end of data is passed on as such, an error as a reset.
func join(out *net.TCPConn, ep tcpip.Endpoint, q *waiter.Queue) {
	rc, err := out.SyscallConn()
	if err != nil {
		ep.Abort()
		out.Close()
		return
	}
	var once sync.Once
	abort := func() {
		once.Do(func() {
			reset(out)
			ep.Abort()
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := outward(ep, q, rc); err != nil {
			abort()
		} else {
			out.CloseWrite()
		}
	}()
	if err := inward(ep, q, rc); err != nil {
		abort()
	} else {
		ep.Shutdown(tcpip.ShutdownWrite)
	}
	<-done
	ep.Close()
	out.Close()
}

// outward copies from the twin to the outside. Data that the outer socket does
// not take stays in the endpoint, whose window then closes: back-pressure.
func outward(ep tcpip.Endpoint, q *waiter.Queue, rc syscall.RawConn) error {
	e, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	q.EventRegister(&e)
	defer q.EventUnregister(&e)
	for {
		var terr tcpip.Error
		w := socketWriter{}
		err := rc.Write(func(fd uintptr) bool {
			w = socketWriter{fd: int(fd)}
			_, terr = ep.Read(&w, tcpip.ReadOptions{})
			return !w.full
		})
		if err = errors.Join(err, w.err); err != nil {
			return err
		}
		switch terr.(type) {
		case nil:
		case *tcpip.ErrBadBuffer: // a short write: the socket filled up in the middle
		case *tcpip.ErrWouldBlock:
			<-ready
		case *tcpip.ErrClosedForReceive:
			return nil
		default:
			return errors.New(terr.String())
		}
	}
}

// socketWriter sends to a socket what it takes at once.
type socketWriter struct {
	fd   int
	full bool
	err  error
}

func (w *socketWriter) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(w.fd), uintptr(unsafe.Pointer(&b[n])), uintptr(len(b)-n),
			unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			n += int(m)
		case unix.EINTR:
		case unix.EAGAIN:
			w.full = true
			return n, io.ErrShortWrite
		default:
			w.err = e
			return n, e
		}
	}
	return n, nil
}

// inward copies from the outside to the twin.
func inward(ep tcpip.Endpoint, q *waiter.Queue, rc syscall.RawConn) error {
	e, ready := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	q.EventRegister(&e)
	defer q.EventUnregister(&e)
	for {
		buf, n, err := receiveMost(rc, most)
		if n > 0 {
			err = writeAll(ep, ready, buf[:n])
		}
		if buf != nil {
			buffers.Put(buf)
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// receive waits for data, or one datagram.
func receive(rc syscall.RawConn) (buf *[64 << 10]byte, n int, err error) {
	return receiveMost(rc, len(buf))
}

// receiveMost waits for data. It takes a buffer when there is some and gives it back
// before it waits; the caller gets the one that is filled.
func receiveMost(rc syscall.RawConn, most int) (buf *[64 << 10]byte, n int, err error) {
	var errno unix.Errno
	err = rc.Read(func(fd uintptr) bool {
		if buf == nil {
			buf = buffers.Get().(*[64 << 10]byte)
		}
		for {
			m, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(buf)), uintptr(most), unix.MSG_DONTWAIT, 0, 0)
			switch e {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				buffers.Put(buf)
				buf = nil
				return false
			}
			n, errno = int(m), e
			return true
		}
	})
	if err == nil && errno != 0 {
		n, err = 0, errno
	}
	return buf, n, err
}

func writeAll(ep tcpip.Endpoint, ready <-chan struct{}, b []byte) error {
	rd := bytes.NewReader(b)
	for rd.Len() > 0 {
		_, terr := ep.Write(rd, tcpip.WriteOptions{})
		switch terr.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			<-ready
		default:
			return errors.New(terr.String())
		}
	}
	return nil
}
