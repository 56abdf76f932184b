package relay

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// fence refuses an address of the host itself, or of nobody.
func (l *lane) fence(dst netip.Addr) *refusal {
	reason := "a service of the host itself that is not relayed: netsandbox create --relay PORT"
	if !l.relay.host.local(dst) && !dst.IsUnspecified() {
		reason = "it is nobody's address"
	}
	return &refusal{way.Limit{Kind: way.Route, Subject: dst.String(), Reason: reason}, prohibited, &l.relay.counts.fenced}
}

// foreign refuses a source address that the host does not have.
func (l *lane) foreign(src netip.Addr) *refusal {
	return l.blocked(way.Limit{Kind: way.Source, Subject: src.String(), Reason: "the host does not have this source address"})
}

// blocked refuses what the host cannot be made to do.
func (l *lane) blocked(lim way.Limit) *refusal {
	return &refusal{lim, hostUnreachable, &l.relay.counts.unmirrored}
}

// limited refuses with the answer of whoever keeps the ways.
func (w *route) limited(err error) *refusal {
	lim := way.Limit{Kind: way.Route, Reason: err.Error()}
	if known, ok := errors.AsType[*way.Limit](err); ok {
		lim = *known
	}
	if lim.Subject == "" {
		lim.Subject = w.subject()
	}
	return w.lane.blocked(lim)
}

// unmarked refuses because the kernel gives marks to nobody but CAP_NET_ADMIN,
// which the relay must not have.
func (w *route) unmarked(err error) *refusal {
	reason := "the packet cannot be marked: " + err.Error()
	if errors.Is(err, unix.EPERM) {
		reason = "marking packets takes CAP_NET_ADMIN on this kernel (before Linux 5.17)"
	}
	return w.lane.blocked(way.Limit{Kind: way.Route, Subject: w.subject(), Reason: reason})
}

// subject names the lane for people.
func (w *route) subject() string {
	if hop := w.flow.Lane.NextHop; hop.IsValid() {
		return w.lane.hop.itf.Name + " via " + hop.String()
	}
	return w.lane.hop.itf.Name
}

// afterwards is the refusal of a stream whose outer handshake is done already:
// what the twin is told then is a reset, as of a connection that somebody broke.
func (r *refusal) afterwards() error { return fmt.Errorf("%w: %w", unix.ECONNRESET, r) }

// refuse remembers a flow that is not carried and tells the twin. quote is the
// head of its first packet; nil: the twin is told nothing.
func (l *lane) refuse(quote []byte, r *refusal) {
	r.count.Add(1)
	l.relay.limit(&r.limit)
	l.unreachable(quote, r.code)
}

// fail tells the twin what came of an outer socket: a refusal of ours, or what
// the outside said. It reports whether the twin was told anything.
func (l *lane) fail(quote []byte, err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		if errors.Is(err, unix.ECONNRESET) {
			quote = nil
		}
		l.refuse(quote, r)
		return true
	}
	if reason := scarce(err); reason != "" {
		l.refuse(quote, l.blocked(way.Limit{Kind: way.Load, Subject: destination(quote), Reason: reason}))
		return true
	}
	l.relay.counts.refused.Add(1)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		// The twin's copy of the host's rules let it out. The host's own did not:
		// they match what the twin's packets are not (a user, a cgroup, a program).
		l.relay.limit(&way.Limit{Kind: way.Firewall, Subject: destination(quote), Reason: "the host's firewall refused what the twin's allowed"})
	}
	why, ok := codeOf(err)
	if ok {
		l.unreachable(quote, why)
	}
	return ok
}

// scarce names what was used up when a socket was to be made or connected; "" when
// the error is another. The twin has ports and descriptors of its own; the host's,
// and those of the one process that the relay is, may be used up before.
func scarce(err error) string {
	switch {
	case errors.Is(err, unix.EADDRNOTAVAIL): // the source is the host's: it was bound
		return "the host has no free port left for connections there"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return "no socket can be opened for it: " + plain(err).Error()
	}
	return ""
}

// destination is where a quoted packet went.
func destination(quote []byte) string {
	var dst []byte
	switch {
	case len(quote) >= 20 && quote[0]>>4 == 4:
		dst = quote[16:20]
	case len(quote) >= 40:
		dst = quote[24:40]
	}
	a, _ := netip.AddrFromSlice(dst)
	return a.String()
}
