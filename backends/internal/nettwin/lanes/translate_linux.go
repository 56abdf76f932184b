package lanes

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/conntrack"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Translated says where the host's address translation sends a flow: who answers
// to it is who got it. It asks connection tracking for this one flow, in the
// default zone. A flow that is not tracked is not translated. One that is sent on
// with another source is a limit: the twin's own translation is done before, so it
// would have had that source already.
func (l *Lanes) Translated(f way.Flow) (netip.AddrPort, error) {
	f = exact(f)
	c, err := l.tracking()
	if err != nil {
		return netip.AddrPort{}, err
	}
	from, to, err := c.Translated(f.Proto, f.Src, f.Dst)
	switch {
	case errors.Is(err, conntrack.ErrUntracked):
		return netip.AddrPort{}, nil
	case err != nil:
		return netip.AddrPort{}, err
	case to != f.Dst:
		return to, nil
	case from.Addr() != f.Src.Addr():
		return netip.AddrPort{}, &way.Limit{
			Kind: way.Translation, Subject: f.Src.Addr().String(),
			Reason: fmt.Sprintf("the host's own nat gives it the source %s, the twin's does not", from.Addr()),
		}
	}
	return netip.AddrPort{}, nil
}

// tracking opens the way to connection tracking with the first question.
func (l *Lanes) tracking() (*conntrack.Conn, error) {
	l.track.Lock()
	defer l.track.Unlock()
	if l.track.closed {
		return nil, fmt.Errorf("lanes: %w", os.ErrClosed)
	}
	if l.track.Conn == nil {
		c, err := conntrack.Dial(int(l.host.Fd()))
		if err != nil {
			return nil, err
		}
		l.track.Conn = c
	}
	return l.track.Conn, nil
}
