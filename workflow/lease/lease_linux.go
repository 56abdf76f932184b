package lease

import (
	"errors"
	"fmt"
	"time"
)

// PID returns the keeper's process id.
func (l *Lease) PID() int { return l.pid }

// Notes names the protections that this machine could not give the keeper.
func (l *Lease) Notes() []string { return l.notes }

// Lost is closed when nobody watches any more: the keeper died, or does not
// answer and was killed. The applier must undo at once.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Broken receives what the keeper's probes found cut. The applier must call
// [Lease.Undoing] and undo, or the keeper kills it and does.
func (l *Lease) Broken() <-chan string { return l.broken }

// Err says why the lease was lost; nil while it is held.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

// Renew extends the lease now. It is also done on its own at every interval;
// call it before a step that may take long.
func (l *Lease) Renew() error { return l.send(packet(msgRenew, "")) }

// Undoing says that the applier began to undo by itself.
func (l *Lease) Undoing() error { return l.send(packet(msgUndoing, "")) }

// Release ends the lease: the verdict is in the transaction's file. It returns
// when the keeper has ended. A keeper that finds no verdict there undoes, which
// begins with the death of this process.
func (l *Lease) Release(verdict string) error {
	l.mu.Lock()
	if l.done {
		err := l.why
		l.mu.Unlock()
		return err
	}
	l.done = true
	l.mu.Unlock()
	close(l.stop)
	_, err := l.conn.Write(packet(msgRelease, verdict))
	select {
	case <-l.exited:
	case <-time.After(l.cfg.Bound):
		// It had its last word. Killing it cannot harm: there is a verdict.
		err = errors.Join(err, errors.New("the keeper did not end when it was released"), l.keeper.Process.Kill())
		<-l.exited
	}
	Sweep()
	if err = errors.Join(err, l.conn.Close()); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

// send writes one packet. A socket that takes none within the bound belongs to
// a keeper that does not run.
func (l *Lease) send(b []byte) error {
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.conn.SetWriteDeadline(time.Now().Add(l.cfg.Bound)); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	if _, err := l.conn.Write(b); err != nil {
		l.lose(fmt.Errorf("%w: %w", ErrLost, err))
		return l.Err()
	}
	return nil
}

// listen reads the keeper's answers until there is no keeper.
func (l *Lease) listen() {
	b := make([]byte, maxPacket)
	for {
		n, err := l.conn.Read(b)
		if err != nil {
			l.lose(fmt.Errorf("%w: it ended", ErrLost))
			return
		}
		switch m, text := open(b[:n]); m {
		case msgRenewed:
			l.mu.Lock()
			l.acked = time.Now()
			l.mu.Unlock()
		case msgBroken:
			select {
			case l.broken <- text:
			default: // said before
			}
		}
	}
}

// renewing renews at every interval and watches for the answers.
func (l *Lease) renewing() {
	t := time.NewTicker(l.cfg.Renew)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.lost:
			return
		case <-t.C:
		}
		if l.Renew() != nil {
			return
		}
		l.mu.Lock()
		silent := time.Since(l.acked)
		l.mu.Unlock()
		if silent > l.cfg.Bound {
			l.lose(fmt.Errorf("%w: it did not answer for %v", ErrLost, silent.Round(time.Millisecond)))
			return
		}
	}
}

// lose makes the loss known. The keeper is killed first: if it was only stopped,
// it would later take this process for the one that hangs.
func (l *Lease) lose(why error) {
	l.mu.Lock()
	if l.done {
		l.mu.Unlock()
		return
	}
	l.done, l.why = true, why
	l.mu.Unlock()
	_ = l.keeper.Process.Kill() // from here on it runs no further instruction of ours
	close(l.lost)
	_ = l.conn.Close()
	<-l.exited
	Sweep()
}
