package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// answerTime bounds one answer of the relay. It only ever has to fill tables.
const answerTime = 10 * time.Second

// Process is a relay as its twin sees it.
type Process struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
	mu   sync.Mutex // one request at a time
	done chan struct{}
	err  error // why it ended; read after done
}

// Spawn starts a relay in the network namespace of the calling thread. Serve is
// not yet called: it has no interfaces and is not confined.
func Spawn(exe string, stderr io.Writer) (*Process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer theirs.Close()
	conn, err := controlConn(ours)
	if err != nil {
		return nil, err
	}
	last := &tail{to: stderr}
	cmd := &exec.Cmd{
		Path: exe, Args: []string{Argv0}, Dir: "/", Stderr: last, ExtraFiles: []*os.File{theirs},
		Env: []string{"GOMEMLIMIT=" + softMemory, "GOTRACEBACK=single"},
		// Not Pdeathsig: that is the death of the thread that forked. The relay
		// sees the end of the control socket.
		SysProcAttr: &unix.SysProcAttr{
			Setsid:     true,
			Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		},
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start relay: %w", err)
	}
	p := &Process{cmd: cmd, conn: conn, done: make(chan struct{})}
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
	b, err := json.Marshal(q)
	if err != nil {
		return Counts{}, err
	}
	var oob []byte
	if f != nil {
		// Fd would make the descriptor blocking, here and in the relay.
		rc, err := f.SyscallConn()
		if err != nil {
			return Counts{}, err
		}
		if err := rc.Control(func(fd uintptr) { oob = unix.UnixRights(int(fd)) }); err != nil {
			return Counts{}, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return Counts{}, fmt.Errorf("ask relay: %w", err)
	}
	if _, _, err := p.conn.WriteMsgUnix(b, oob, nil); err != nil {
		return Counts{}, fmt.Errorf("ask relay: %w", err)
	}
	buf := make([]byte, maxMessage)
	n, err := p.conn.Read(buf)
	if err != nil {
		return Counts{}, fmt.Errorf("hear relay: %w", err)
	}
	var a Answer
	if err := json.Unmarshal(buf[:n], &a); err != nil {
		return Counts{}, fmt.Errorf("hear relay: %w", err)
	}
	if a.Err != "" {
		return a.Counts, errors.New(a.Err)
	}
	return a.Counts, nil
}

// Close ends the process and waits until it is gone.
func (p *Process) Close() error {
	p.conn.Close()
	p.cmd.Process.Kill()
	<-p.done
	return nil
}

// tail keeps the last words of a process.
type tail struct {
	mu sync.Mutex
	to io.Writer
	b  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const keep = 2048
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if len(t.b) > keep {
		t.b = t.b[len(t.b)-keep:]
	}
	if t.to != nil {
		t.to.Write(b)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
