package nettwin

import (
	"errors"
	"net"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/conntrack"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/sockdiag"
)

// answers tells the relay what of the two kernels it has no right to ask itself:
// the relay parses what the inside sends, and gave its rights away.
type answers struct {
	conn       *net.UnixConn
	twin, host *conntrack.Conn
	sockets    *sockdiag.Conn // of the host; not shared with the poll
	done       chan struct{}
}

// openAnswers opens the conversation and hands one end to the relay.
func openAnswers(to *relay.Process, twin, host int) (_ *answers, err error) {
	a := &answers{done: make(chan struct{})}
	conn, theirs, err := relay.SocketPair()
	if err != nil {
		return nil, err
	}
	a.conn = conn
	err = handOver(to, relay.LoopQuestions, theirs)
	if err == nil {
		a.twin, err = conntrack.Dial(twin)
	}
	if err == nil {
		a.host, err = conntrack.Dial(host)
	}
	if err == nil {
		a.sockets, err = sockdiag.Dial(host)
	}
	if err != nil {
		close(a.done)
		return nil, errors.Join(err, a.close())
	}
	go func() {
		defer close(a.done)
		// Whatever the relay sends, it learns how the two kernels treat one flow.
		_ = relay.AnswerLoop(a.conn, a.answer)
	}()
	return a, nil
}

func (a *answers) answer(q relay.LoopQuestion) (relay.LoopAnswer, error) {
	switch q.What {
	case relay.LoopOriginal:
		to, err := a.twin.Original(q.Proto, q.Src, q.Dst)
		return relay.LoopAnswer{To: to}, err
	case relay.LoopTreatment:
		_, to, err := a.host.Translated(q.Proto, q.Src, q.Dst)
		if errors.Is(err, conntrack.ErrUntracked) {
			to, err = q.Dst, nil
		}
		return relay.LoopAnswer{To: to}, err
	case relay.LoopPeer:
		// The far end of a stream that a local proxy took has the very address that
		// was dialled.
		there, err := a.sockets.Has(q.Proto, q.Dst, q.Src)
		return relay.LoopAnswer{There: there}, err
	}
	return relay.LoopAnswer{}, errors.New("question is not understood")
}

func (a *answers) close() error {
	errs := []error{a.conn.Close()}
	<-a.done
	for _, c := range []*conntrack.Conn{a.twin, a.host} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if a.sockets != nil {
		errs = append(errs, a.sockets.Close())
	}
	return errors.Join(errs...)
}
