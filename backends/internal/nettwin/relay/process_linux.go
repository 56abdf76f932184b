package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Process is a relay as its twin sees it.
type Process struct {
	cmd     *exec.Cmd
	control *control
	keep    *keep
	done    chan struct{}
	err     error // why it ended; read after done
}

// Spawn starts a relay in the network namespace of the calling thread. It has no
// interfaces yet and is not confined. ways makes the host go where the host does
// not go by itself; nil: nobody does.
func Spawn(exe string, stderr io.Writer, ways way.Keeper) (*Process, error) {
	conn, theirs, err := SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	asked, asking, err := SocketPair()
	if err != nil {
		conn.Close()
		return nil, err
	}
	defer asking.Close()
	last := &tail{to: stderr}
	cmd := &exec.Cmd{
		Path: exe, Args: []string{Argv0}, Dir: "/", Stderr: last,
		ExtraFiles: []*os.File{theirs, asking}, // controlFD, waysFD
		Env:        []string{"GOMEMLIMIT=" + softMemory, "GOTRACEBACK=single"},
		// Not Pdeathsig: that is the death of the thread that forked. The relay
		// sees the end of the control socket.
		SysProcAttr: &unix.SysProcAttr{
			Setsid:     true,
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		},
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		asked.Close()
		return nil, fmt.Errorf("start relay: %w", err)
	}
	p := &Process{cmd: cmd, control: &control{conn: conn}, keep: newKeep(asked, ways), done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		if text := last.String(); text != "" {
			err = fmt.Errorf("%w: %s", errors.Join(err), text)
		}
		p.err = err
		close(p.done)
	}()
	return p, nil
}

// PID is the process number, and 0 when it is gone.
func (p *Process) PID() int {
	select {
	case <-p.done:
		return 0
	default:
		return p.cmd.Process.Pid
	}
}

// Done is closed when the process is gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says why the process ended; nil while it lives.
func (p *Process) Err() error {
	select {
	case <-p.done:
		if p.err == nil {
			return errors.New("relay ended")
		}
		return p.err
	default:
		return nil
	}
}

// Do sends one request, with a descriptor or without, and returns the counters.
func (p *Process) Do(q Request, f *os.File) (Counts, error) {
	if q.Interface != nil {
		p.keep.link(q.Interface.Index)
	}
	a, err := p.control.do(q, f)
	return a.Counts, err
}

// Limits returns what could not be done as on the host since a number, oldest
// first, and the number to ask with the next time.
func (p *Process) Limits(since uint64) ([]way.Limit, uint64, error) {
	a, err := p.control.do(Request{Limits: &since}, nil)
	if err != nil {
		return nil, since, err
	}
	return a.Limits, a.Next, nil
}

// Close ends the process and waits until it is gone, and with it what the host
// holds for its flows.
func (p *Process) Close() error {
	p.control.conn.Close()
	p.cmd.Process.Kill()
	<-p.done
	p.keep.close()
	return nil
}

// tail keeps the last words of a process. They may be somebody else's by then, so
// they are made safe to print, line by line.
type tail struct {
	mu sync.Mutex
	to io.Writer
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const keep = 2048
	lines := strings.Split(string(b), "\n")
	for i, l := range lines {
		lines[i] = change.Escape(strings.ReplaceAll(l, "\t", "  ")) // of a trace
	}
	said := strings.Join(lines, "\n")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, said...)
	if len(t.b) > keep {
		t.b = t.b[len(t.b)-keep:]
	}
	if t.to != nil {
		io.WriteString(t.to, said)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
