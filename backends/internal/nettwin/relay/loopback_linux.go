package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// loopback is what the relay serves the twin's loopback with.
type loopback struct {
	raw       [2]*os.File // by "is IPv6"
	questions *questions
	waiting   atomic.Int64 // bytes of datagrams
	diverts   atomic.Bool  // the host routes some foreign destinations to itself
}

// serveLoopback takes over one socket of the twin's loopback. Raw sockets and the
// conversation come before the sockets that need them.
func (r *Relay) serveLoopback(l Listen, f *os.File) error {
	switch kind := l.Kind; kind {
	case LoopStreams, TranslatedStreams, DivertedStreams:
		if kind == DivertedStreams {
			r.loop.diverts.Store(true)
		}
		return r.serveStreams(f, kind)
	case LoopDatagrams, TranslatedDatagrams, DivertedDatagrams:
		return r.serveDatagrams(f, kind)
	case LoopAnswers:
		return r.loop.answerBy(f)
	case LoopQuestions:
		c, err := controlConn(f)
		if err == nil {
			r.loop.questions = &questions{conn: c}
		}
		return err
	default:
		f.Close()
		return fmt.Errorf("socket for %q is not understood", kind)
	}
}

// allows reports whether a host service may be dialled.
func (a *Allow) allows(to netip.AddrPort) bool {
	return slices.Contains(a.Ports, to.Port()) || slices.Contains(a.Exact, to)
}

// passage is one flow that was captured in the twin.
type passage struct {
	kind  LoopKind
	proto uint8
	// client sent to to, and nat in the twin made at of it.
	client, at, to netip.AddrPort
	foreign        bool // to is not the host
}

// errFenced is the answer to a flow that the twin may not send to the host.
var errFenced = errors.New("it is no relayed service")

// admit decides on a flow before anything is dialled. Root inside can have what
// it likes captured, with any destination, so addresses of the host are believed
// only as far as the allow-list goes. A foreign one may be dialled: the twin could
// have sent it there by a lane, and what the host's nat makes of it is asked
// afterwards.
func (r *Relay) admit(p *passage) error {
	a := p.to.Addr()
	if r.cut || !a.IsValid() || a.IsUnspecified() || a.Is4In6() || a.IsMulticast() || p.to.Port() == 0 {
		return errFenced
	}
	p.foreign = !r.host.local(a)
	switch {
	case !p.foreign && p.kind != DivertedStreams && p.kind != DivertedDatagrams:
		if !r.allow.Load().allows(p.to) {
			return errors.Join(errFenced, &way.Limit{
				Kind: way.Route, Subject: p.to.String(), Reason: "a service of the host itself that is not relayed: netsandbox create --relay PORT",
			})
		}
	case !p.foreign:
		return errFenced
	case p.kind == LoopStreams || p.kind == LoopDatagrams:
		return &way.Limit{Kind: way.Source, Subject: p.to.String(), Reason: "the address is the twin's and not the host's"}
	case p.kind == DivertedDatagrams:
		return &way.Limit{Kind: way.Translation, Subject: p.to.String(), Reason: "datagrams are routed to a local proxy, which cannot be asked whether it takes them"}
	}
	return nil
}

// confirm asks, when the first packet has gone from src, whether the host treats
// the flow as the twin did. For each kind there is one proof.
func (r *Relay) confirm(p passage, src netip.AddrPort) error {
	q := LoopQuestion{What: LoopTreatment, Proto: p.proto, Src: src, Dst: p.to}
	switch {
	case p.kind == DivertedStreams:
		q.What = LoopPeer
	case p.at == p.to && !r.translates.Load():
		return nil
	}
	a, err := r.loop.questions.ask(q)
	switch {
	case err != nil && q.What == LoopTreatment && p.at == p.to:
		// A kernel that lets nobody look (no ctnetlink) would cost every name and
		// proxy on loopback; a probe that fails is then no proof of anything.
		r.limit(p.limit("the host's treatment of it cannot be seen: " + err.Error()))
		return nil
	case err != nil:
		return p.limit("the host's treatment of it cannot be seen: " + err.Error())
	case q.What == LoopPeer && !a.There:
		return p.limit("the twin routes it to a local proxy, the host does not")
	case q.What == LoopPeer, a.To == p.at:
		return nil
	case a.To == p.to:
		return p.limit(fmt.Sprintf("the twin's nat sends it to %s, the host's leaves it", p.at))
	case p.at == p.to:
		return p.limit(fmt.Sprintf("the host's nat sends it to %s, the twin's leaves it", a.To))
	}
	return p.limit(fmt.Sprintf("the twin's nat sends it to %s, the host's to %s", p.at, a.To))
}

// divertedByHost is asked about a stream that left the twin by a lane and was
// dialled. A local proxy of the host's that took it would answer for a candidate
// that no longer diverts.
func (r *Relay) divertedByHost(f way.Flow) *way.Limit {
	if !r.loop.diverts.Load() || f.Proto != unix.IPPROTO_TCP {
		return nil
	}
	p := passage{to: f.Dst}
	a, err := r.loop.questions.ask(LoopQuestion{What: LoopPeer, Proto: f.Proto, Src: f.Src, Dst: f.Dst})
	if err != nil {
		return p.limit("the host's treatment of it cannot be seen: " + err.Error())
	}
	if a.There {
		return p.limit("the host routes it to a local proxy, the twin does not")
	}
	return nil
}

func (p passage) limit(reason string) *way.Limit {
	return &way.Limit{Kind: way.Translation, Subject: p.to.String(), Reason: reason}
}

// unanswered is what a dial that failed means. The twin's kernel completed the
// handshake because somebody listens on the host; so a flow to a foreign address
// did not get there.
func (p passage) unanswered(err error) error {
	if reason := scarce(err); reason != "" {
		return &way.Limit{Kind: way.Load, Subject: p.to.String(), Reason: reason}
	}
	if !p.foreign {
		return err
	}
	return p.limit(fmt.Sprintf("the twin sends it to a local proxy; dialled on the host: %v", plain(err)))
}

// plain is the errno in an error of package net, whose text names ports of ours.
func plain(err error) error {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return err
}

// turnAway counts a flow that is not carried, and remembers why when the twin
// could not do as the host would.
func (r *Relay) turnAway(err error) {
	lim, limited := errors.AsType[*way.Limit](err)
	if limited {
		r.limit(lim)
	}
	switch {
	case errors.Is(err, errFenced):
		r.counts.fenced.Add(1)
	case limited:
		r.counts.unmirrored.Add(1)
	default:
		r.counts.refused.Add(1)
	}
}
