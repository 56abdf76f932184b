package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Main is the relay process. It returns when the control socket ends, and with
// it the process must: nobody else knows that it exists.
func Main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "netsandbox-relay:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve takes orders until the twin is gone.
func serve() error {
	c, err := controlConn(os.NewFile(controlFD, "control"))
	if err != nil {
		return err
	}
	ways, err := controlConn(os.NewFile(waysFD, "ways"))
	if err != nil {
		return err
	}
	s, err := newServer(ways)
	if err != nil {
		return err
	}
	buf := make([]byte, maxMessage)
	for {
		req, fd, err := readRequest(c, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		a := Answer{ID: req.ID}
		if err := s.do(req, fd); err != nil {
			a.Err = err.Error()
		}
		if req.Limits != nil {
			s.relay.stalls.look()
			a.Limits, a.Next = s.relay.limits.since(*req.Limits)
		}
		a.Counts = s.relay.Counts()
		b, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if _, err := c.Write(b); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// readRequest reads one order and the descriptor that came with it, or nil.
func readRequest(c *net.UnixConn, buf []byte) (*Request, *os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, on, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, io.EOF
	}
	var f *os.File
	if on > 0 {
		ms, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil || len(ms) != 1 {
			return nil, nil, fmt.Errorf("read descriptor: %w", errors.Join(err, unix.EBADMSG))
		}
		fds, err := unix.ParseUnixRights(&ms[0])
		if err != nil || len(fds) != 1 {
			return nil, nil, fmt.Errorf("read descriptor: %w", errors.Join(err, unix.EBADMSG))
		}
		unix.CloseOnExec(fds[0])
		unix.SetNonblock(fds[0], true)
		f = os.NewFile(uintptr(fds[0]), "passed")
	}
	req := &Request{}
	if err := json.Unmarshal(buf[:n], req); err != nil {
		return nil, f, fmt.Errorf("read request: %w", err)
	}
	return req, f, nil
}

// server is the relay with what it collects before it starts.
type server struct {
	relay   *Relay
	readers []*reader
	started bool
}

func newServer(ways *net.UnixConn) (*server, error) {
	host, err := openKernel()
	if err != nil {
		return nil, err
	}
	r, err := newRelay(host, newAsker(ways))
	if err != nil {
		return nil, err
	}
	return &server{relay: r}, nil
}

func (s *server) do(q *Request, f *os.File) error {
	switch {
	case q.Interface != nil && f != nil && !s.started:
		itf, err := newInterface(*q.Interface, f)
		if err != nil {
			return err
		}
		for _, n := range q.Interface.Static {
			s.relay.hops.tell(itf, n)
		}
		s.readers = append(s.readers, &reader{relay: s.relay, itf: itf})
		return nil
	case q.Listen != nil && f != nil:
		return s.relay.serveLoopback(*q.Listen, f)
	case q.Allow != nil:
		s.relay.allow.Store(q.Allow)
		return nil
	case q.Translates != nil:
		s.relay.translates.Store(*q.Translates)
		return nil
	case q.Start != nil && !s.started:
		return s.start(q.Start)
	case q.Met != nil:
		s.relay.limits.add(*q.Met)
		return nil
	case q.Count, q.Limits != nil:
		return nil
	}
	return errors.New("request is not understood")
}

// start gives everything away and begins to read frames.
func (s *server) start(q *Start) error {
	if err := confine(); err != nil {
		return err
	}
	s.started, s.relay.cut = true, q.Cut
	s.relay.translates.Store(q.Translates)
	if q.Idle != nil {
		s.relay.idle = *q.Idle
	}
	for _, r := range s.readers {
		go func() {
			if err := r.run(); !gone(err) {
				fmt.Fprintf(os.Stderr, "netsandbox-relay: read tap %s: %v\n", r.itf.Name, err)
			}
		}()
	}
	return nil
}
