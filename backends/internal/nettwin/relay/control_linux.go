package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// answerTime bounds one answer of the relay. It only ever has to fill tables.
const answerTime = 10 * time.Second

// maxError bounds an error text of the relay.
const maxError = 512

// control is the twin's end of the control socket.
type control struct {
	conn *net.UnixConn
	mu   sync.Mutex // one request at a time
	last uint64     // number of the newest request
}

// SocketPair makes a conversation with the relay: our end and the relay's.
func SocketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := controlConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// controlConn takes over one end of a conversation.
func controlConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open control socket: %w", err)
	}
	return c.(*net.UnixConn), nil
}

// do sends one request, with a descriptor or without, and returns the answer.
func (c *control) do(q Request, f *os.File) (Answer, error) {
	var oob []byte
	if f != nil {
		// Fd would make the descriptor blocking, here and in the relay.
		rc, err := f.SyscallConn()
		if err != nil {
			return Answer{}, err
		}
		if err := rc.Control(func(fd uintptr) { oob = unix.UnixRights(int(fd)) }); err != nil {
			return Answer{}, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	q.ID = c.last
	b, err := json.Marshal(q)
	if err != nil {
		return Answer{}, err
	}
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return Answer{}, fmt.Errorf("ask relay: %w", err)
	}
	if _, _, err := c.conn.WriteMsgUnix(b, oob, nil); err != nil {
		return Answer{}, fmt.Errorf("ask relay: %w", err)
	}
	a, err := c.hear(q.ID)
	if err != nil {
		return Answer{}, fmt.Errorf("hear relay: %w", err)
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

// hear reads the answer to one request. That to an earlier one, which came when
// nobody waited any more, is passed over: taken for this one's, it would say that no
// limit was met.
func (c *control) hear(id uint64) (Answer, error) {
	buf := make([]byte, maxMessage)
	for {
		n, err := c.conn.Read(buf)
		if err != nil {
			return Answer{}, err
		}
		var a Answer
		if err := json.Unmarshal(buf[:n], &a); err != nil {
			return Answer{}, err
		}
		if a.ID == id {
			a.tidy()
			return a, nil
		}
	}
}

// tidy cuts to size and makes printable what the relay says: it parses hostile
// frames.
func (a *Answer) tidy() {
	a.Err = change.Escape(a.Err[:min(len(a.Err), maxError)])
	a.Limits = a.Limits[:min(len(a.Limits), maxLimits+1)]
	for i, l := range a.Limits {
		a.Limits[i] = tidy(l)
	}
}
