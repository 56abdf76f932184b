package wire

import (
	"context"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// askName is the abstract socket on which a holder answers questions from its
// view. Abstract names belong to a network namespace, so this one is the view's
// alone, and nothing of it is in the files that the view shows.
const askName = "@netsandbox/ask"

// Ask is a question from inside a view: one of the program's own verbs that only
// look. It is untrusted; the holder makes the command line itself.
type Ask struct {
	Verb    string   `json:"verb"`
	Path    string   `json:"path,omitempty"`
	Timeout string   `json:"timeout,omitempty"`
	Secrets bool     `json:"secrets,omitempty"`
	JSON    bool     `json:"json,omitempty"`
	Env     []string `json:"env,omitempty"` // proxy variables, for canaries
}

// Answer is a piece of output in the body, for stream 1 or 2, or the end.
type Answer struct {
	Stream int    `json:"stream,omitempty"`
	Exited bool   `json:"exited,omitempty"`
	Exit   int    `json:"exit,omitempty"`
	Error  string `json:"error,omitempty"` // why there is no answer
}

// ListenAsk binds the socket in the network namespace of the calling thread.
func ListenAsk() (*Listener, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	c, err := New(fd)
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: askName}); err == nil {
		err = unix.Listen(fd, 8)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("listen on %s: %w", askName, err)
	}
	return &Listener{c}, nil
}

// Put asks the holder of the view that this process is in and copies the answer
// out. It returns the exit status of the verb.
func (a Ask) Put(ctx context.Context, stdout, stderr io.Writer) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("make socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: askName}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("reach the holder of this view: %w", err)
	}
	c, err := New(fd)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := c.Send(a, nil); err != nil {
		return 0, err
	}
	for {
		var r Answer
		body, fds, err := c.Recv(&r)
		CloseAll(fds)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			return 0, fmt.Errorf("hear the holder of this view: %w", err)
		case r.Error != "":
			return r.Exit, fmt.Errorf("%s", r.Error)
		case r.Exited:
			return r.Exit, nil
		}
		w := stdout
		if r.Stream == 2 {
			w = stderr
		}
		if _, err := w.Write(body); err != nil {
			return 0, err
		}
	}
}
