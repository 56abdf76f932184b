package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lease is the applier's end. Its methods are safe for concurrent use.
type Lease struct {
	pid   int
	notes []string
	cfg   Config

	conn   *os.File
	keeper *exec.Cmd
	exited chan struct{} // the keeper was reaped
	lost   chan struct{}
	broken chan string
	stop   chan struct{} // released: the ticker ends

	mu    sync.Mutex
	acked time.Time // the keeper's last answer
	why   error
	done  bool // released, or lost
}

// Arm starts a keeper and returns when it has confirmed: it has the applier's
// pidfd, could open the transaction file, and its timer runs. On error no keeper
// is left and nothing may be changed.
func Arm(ctx context.Context, cfg Config) (_ *Lease, err error) {
	cfg = cfg.filled()
	Sweep()
	l := &Lease{cfg: cfg, exited: make(chan struct{}), lost: make(chan struct{}), broken: make(chan string, 1), stop: make(chan struct{})}
	if err := l.start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotArmed, err)
	}
	// A keeper that failed at start-up must look like a refusal, not like a trial
	// that nobody watches.
	if err := l.confirm(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNotArmed, err), l.abandon())
	}
	l.acked = time.Now()
	go l.listen()
	go l.renewing()
	return l, nil
}

// start executes the keeper with its end of the socket and our pidfd. The pidfd
// is made here, where the pid cannot have been reused.
func (l *Lease) start() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "lease")
	defer theirs.Close()
	if err := unix.SetNonblock(pair[0], true); err != nil { // before NewFile: only then has it deadlines
		unix.Close(pair[0])
		return err
	}
	l.conn = os.NewFile(uintptr(pair[0]), "lease")
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		l.conn.Close()
		return fmt.Errorf("open own pidfd: %w", err)
	}
	self := os.NewFile(uintptr(pidfd), "pidfd")
	defer self.Close()

	// Not CommandContext: a keeper ends by verdict, never with its caller.
	cmd := exec.Command(l.cfg.Exe) //nolint:gosec // it is this program
	cmd.Args = append([]string{"netsandbox", Command}, l.cfg.Args...)
	cmd.Env, cmd.Dir = l.cfg.Env, "/"
	cmd.ExtraFiles = append([]*os.File{theirs, self}, l.cfg.Files...)
	if l.cfg.Log != nil {
		cmd.Stdout, cmd.Stderr = l.cfg.Log, l.cfg.Log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		l.conn.Close()
		return err
	}
	l.keeper = cmd
	go func() {
		_ = cmd.Wait() // what it has to say it says over the socket
		close(l.exited)
	}()
	return nil
}

// confirm hands over the terms and waits for the answer.
func (l *Lease) confirm(ctx context.Context) error {
	limit := time.Now().Add(defaultConfirm)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	if err := l.conn.SetDeadline(limit); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Now()) })()
	arm, err := jsonPacket(msgArm, terms{
		TxnPath: l.cfg.TxnPath, Bound: l.cfg.Bound, ConfirmBy: l.cfg.ConfirmBy, HardBreak: l.cfg.HardBreak, Grace: l.cfg.Grace,
	})
	if err != nil {
		return err
	}
	b, n := make([]byte, maxPacket), 0
	if _, err = l.conn.Write(arm); err == nil {
		n, err = l.conn.Read(b)
	}
	// A socket whose other end closed before it read is reset, not ended.
	if errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return errors.New("it ended at once")
	}
	if err != nil {
		return err
	}
	switch m, text := open(b[:n]); m {
	case msgArmed:
		var r report
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return err
		}
		l.pid, l.notes = r.PID, r.Notes
		return l.conn.SetDeadline(time.Time{})
	case msgRefused:
		return errors.New(text)
	default:
		return fmt.Errorf("it answered %q", b[:n])
	}
}

// abandon ends a keeper that is not wanted, or not to be trusted.
func (l *Lease) abandon() error {
	err := l.keeper.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-l.exited
	Sweep()
	return errors.Join(err, l.conn.Close())
}
