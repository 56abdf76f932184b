package relay

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// release gives back what the host holds for the flow.
func (w *route) release() {
	if w.admitted.Swap(false) {
		w.lane.relay.ways.Release(w.flow)
	}
}

// linger bounds how long the answers to a stream are let in after its end.
const linger = time.Minute

// toReset reports whether the close of a socket resets the connection.
func toReset(fd int) bool {
	l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
	return err == nil && l.Onoff != 0 && l.Linger == 0
}

// hold keeps the socket of a flow whose answers are let in: the kernel still sends
// what is in it after it was closed, and waits for the last acknowledgement. -1:
// nothing needs to be let in.
func (w *route) hold(c *net.TCPConn) int {
	fd := -1
	if rc, err := c.SyscallConn(); err == nil && w.admitted.Load() {
		_ = rc.Control(func(s uintptr) { // a socket that is closed already is not held
			fd, _ = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0)
		})
	}
	if fd >= 0 && w.held {
		w.lane.relay.stalls.watch(w, fd)
	}
	return fd
}

// retire is release for a stream that ended; fd is what hold returned. A reset is
// sent, and an end in order is over, when the kernel says so.
func (w *route) retire(fd int) {
	if fd >= 0 {
		w.lane.relay.stalls.over(w)
		pause := 5 * time.Millisecond
		for end := time.Now().Add(linger); time.Now().Before(end); pause = min(2*pause, time.Second) {
			info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
			if err != nil || info.State == unix.BPF_TCP_CLOSE || toReset(fd) {
				break
			}
			time.Sleep(pause)
		}
		unix.Close(fd)
	}
	w.release()
}
