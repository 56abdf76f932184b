package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// Keep is the keeper's whole life: it confirms over the socket, watches, and
// returns when it was released or when it has undone. fd is [FD].
func Keep(ctx context.Context, fd int, cfg KeepConfig) error {
	// A hangup of the terminal or a polite request to end must not end the only
	// process that can undo. The context may have been made from such signals.
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE,
		unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGUSR1, unix.SIGUSR2)
	ctx = context.WithoutCancel(ctx)
	k := &keeper{sock: fd, cfg: cfg, scope: &scope{}}
	defer k.scope.leave()
	if err := k.arm(); err != nil {
		err = fmt.Errorf("keep lease: %w", err)
		k.say(packet(msgRefused, err.Error()))
		return err
	}
	defer k.close()
	stop := k.probe(ctx)
	reason, released := k.watch()
	stop()
	if released {
		return nil
	}
	return k.undo(ctx, reason)
}

// keeper watches one applier.
type keeper struct {
	cfg   KeepConfig
	terms terms
	scope *scope

	sock, pid, timer, wake int
	txn                    *os.File

	deadline time.Duration // CLOCK_BOOTTIME at which the lease lapses
	grace    time.Duration // by when the applier must begin to undo; 0: not asked
	undoing  bool          // the applier said that it began
	broke    chan string   // from the probes, announced through wake
	verdict  string
}

// arm takes the terms, sets everything up and confirms.
func (k *keeper) arm() error {
	k.pid, k.timer, k.wake = pidFD, -1, -1
	for _, fd := range []int{k.sock, k.pid} {
		unix.CloseOnExec(fd)
	}
	b := make([]byte, maxPacket)
	n, err := unix.Read(k.sock, b)
	if err != nil {
		return fmt.Errorf("read terms: %w", err)
	}
	m, text := open(b[:n])
	if m != msgArm {
		return errors.New("read terms: the applier is gone")
	}
	if err := json.Unmarshal([]byte(text), &k.terms); err != nil {
		return fmt.Errorf("read terms: %w", err)
	}
	if k.txn, err = os.Open(k.terms.TxnPath); err != nil {
		return fmt.Errorf("open transaction: %w", err)
	}
	if dead, err := k.applierDead(0); err != nil || dead {
		return fmt.Errorf("watch applier: dead: %v: %w", dead, err)
	}
	// BOOTTIME runs on through suspend: a machine that slept past the lease wakes
	// up to an undo, not to a trial that nobody has looked at for hours.
	if k.timer, err = unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return fmt.Errorf("make timer: %w", err)
	}
	if k.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("make event: %w", err)
	}
	if err := unix.SetNonblock(k.sock, true); err != nil {
		return err
	}
	notes := append(k.scope.enter(), protect()...)
	if err := k.renew(); err != nil {
		return err
	}
	armed, err := jsonPacket(msgArmed, report{PID: os.Getpid(), Notes: notes})
	if err != nil {
		return err
	}
	k.say(armed)
	return nil
}

// say sends one packet if the applier takes it. Whether it does not because it
// is dead or because it hangs, other events tell.
func (k *keeper) say(b []byte) { _ = unix.Sendto(k.sock, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil) }

// renew starts the lease's time again.
func (k *keeper) renew() error {
	now, err := clock.Boottime()
	if err != nil {
		return err
	}
	k.deadline = now + k.terms.Bound
	return k.rewind()
}

// rewind sets the timer to whatever runs out first.
func (k *keeper) rewind() error {
	next := k.deadline
	for _, d := range []time.Duration{k.grace, k.terms.ConfirmBy} {
		if d > 0 && d < next {
			next = d
		}
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(next, 1)))}
	if err := unix.TimerfdSettime(k.timer, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	return nil
}

// watch waits until the applier releases the lease or must be undone.
//
// Every turn reads what the applier has said before it judges: a release that
// was sent just before the applier ended, or a renewal that arrived while this
// process got no time, counts.
func (k *keeper) watch() (_ Reason, released bool) {
	for {
		fds := []unix.PollFd{
			{Fd: int32(k.sock), Events: unix.POLLIN},
			{Fd: int32(k.pid), Events: unix.POLLIN},
			{Fd: int32(k.timer), Events: unix.POLLIN},
			{Fd: int32(k.wake), Events: unix.POLLIN},
		}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return Lapsed, false // blind is as bad as late
		}
		drain(k.timer)
		drain(k.wake)
		closed, done := k.hear()
		if done {
			return Undecided, k.decided()
		}
		if closed || fds[1].Revents != 0 {
			return ApplierDied, false
		}
		if reason := k.judge(); reason != "" {
			return reason, false
		}
	}
}

// hear reads every waiting packet.
func (k *keeper) hear() (closed, done bool) {
	b := make([]byte, maxPacket)
	for {
		n, _, err := unix.Recvfrom(k.sock, b, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false, false
		case err != nil || n == 0:
			return true, false
		}
		switch m, text := open(b[:n]); m {
		case msgRenew:
			if k.renew() != nil {
				return true, false
			}
			k.say(packet(msgRenewed, ""))
		case msgUndoing:
			k.undoing, k.grace = true, 0
		case msgRelease:
			k.verdict = text
			return false, true
		}
	}
}

// judge compares the time with every limit.
func (k *keeper) judge() Reason {
	now, err := clock.Boottime()
	if err != nil {
		return Lapsed
	}
	select {
	case what := <-k.broke:
		if !k.undoing && k.grace == 0 {
			k.cfg.Log.Warn().Str("err", what).Msg("circuit.broken")
			k.say(packet(msgBroken, what))
			k.grace = now + k.terms.Grace
		}
	default:
	}
	switch {
	case now >= k.deadline:
		return Lapsed
	case k.grace > 0 && now >= k.grace:
		return Broken
	case k.terms.ConfirmBy > 0 && now >= k.terms.ConfirmBy && !k.undoing:
		return Overdue
	}
	if k.undoing {
		k.terms.ConfirmBy = 0 // it ends as it should, a little later
	}
	if k.rewind() != nil {
		return Lapsed
	}
	return ""
}

// decided reports whether a released lease may be believed.
func (k *keeper) decided() bool {
	if k.cfg.Decided == nil {
		return true
	}
	ok, err := k.cfg.Decided()
	return ok && err == nil
}

// undo kills the applier, waits for its death and undoes. It waits as long as it
// takes: a process in an uninterruptible system call may still change the host
// when that call ends.
func (k *keeper) undo(ctx context.Context, reason Reason) error {
	if err := unix.PidfdSendSignal(k.pid, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		k.cfg.Log.Error().Err(err).Msg("applier.kill")
	}
	for {
		dead, err := k.applierDead(5 * time.Second)
		if dead {
			break
		}
		k.cfg.Log.Warn().AnErr("err", err).Msg("applier.lingers")
		if err != nil {
			return fmt.Errorf("wait for the applier's death: %w", err)
		}
	}
	k.cfg.Log.Warn().Str("reason", string(reason)).Msg("lease.lapsed")
	err := k.cfg.Undo(ctx, reason)
	if err != nil {
		err = fmt.Errorf("undo (%s): %w", reason, err)
	}
	if k.cfg.Settle != nil {
		err = errors.Join(err, k.cfg.Settle())
	}
	return err
}

// applierDead waits until the applier is dead, or the time is over. A pidfd is
// readable when the last thread has ended.
func (k *keeper) applierDead(wait time.Duration) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(k.pid), Events: unix.POLLIN}}, int(wait.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0, err
	}
}

func (k *keeper) close() {
	for _, fd := range []int{k.timer, k.wake} {
		unix.Close(fd)
	}
	k.txn.Close()
}

// drain takes the count off a timer or event, so that it waits again.
func drain(fd int) {
	var b [8]byte
	_, _ = unix.Read(fd, b[:])
}
