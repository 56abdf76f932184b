package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// maxEchoes bounds the flows of echo requests of one twin. When it is reached the
// one that was idle longest is given up.
const maxEchoes = 256

// echoes are the flows of echo requests that are under way.
type echoes struct {
	mu    sync.Mutex
	flows map[echoKey]*echoFlow
}

type echoKey struct {
	lane     *lane
	src, dst netip.Addr
	id       uint16
}

// echoFlow is the requests with one identifier to one destination: one ping.
type echoFlow struct {
	key   echoKey
	queue chan datagram
	moved atomic.Int64 // nanoseconds of the last message, either way
	end   chan struct{}
	once  sync.Once
}

// icmp takes an ICMP packet that the twin's kernel sent down a lane. It must not
// wait, for it runs in the reader of the TAP.
func (l *lane) icmp(p []byte) {
	r := l.relay
	d, part, ok := parse(p)
	if ok && part != nil {
		d, ok = r.pieces.add(d, *part)
	}
	if !ok {
		return // not complete yet, or never
	}
	if !d.asks() {
		r.strange(d.proto, d.dst, d.payload)
		return
	}
	if r.cut || d.ttl == 0 || !d.sound() {
		r.counts.dropped.Add(1)
		return
	}
	if d.options {
		r.limit(&way.Limit{Kind: way.Protocol, Subject: "IPv4 options to " + d.dst.String(), Reason: "the packet is sent without them"})
	}
	f := r.echoFlow(echoKey{l, d.src, d.dst, binary.BigEndian.Uint16(d.payload[icmpID:])})
	if f == nil {
		return
	}
	select {
	case f.queue <- d:
	default:
		r.counts.dropped.Add(1) // faster than the outside takes it
	}
}

// echoFlow finds the flow of a request, or begins it. Nil: there are too many.
func (r *Relay) echoFlow(k echoKey) *echoFlow {
	s := &r.echoes
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flows[k]; f != nil {
		return f
	}
	if len(s.flows) >= maxEchoes && !s.evict() {
		r.counts.dropped.Add(1)
		r.limit(&way.Limit{Kind: way.Load, Subject: "echo requests", Reason: fmt.Sprintf("more than %d are under way", maxEchoes)})
		return nil
	}
	if s.flows == nil {
		s.flows = map[echoKey]*echoFlow{}
	}
	f := &echoFlow{key: k, queue: make(chan datagram, 16), end: make(chan struct{})}
	f.touch()
	s.flows[k] = f
	go f.run()
	return f
}

// evict gives up the flow that was idle longest, if it had time to be answered.
// The caller holds the lock.
func (s *echoes) evict() bool {
	var old *echoFlow
	for _, f := range s.flows {
		if old == nil || f.moved.Load() < old.moved.Load() {
			old = f
		}
	}
	if old == nil || old.idle() < patience {
		return false
	}
	delete(s.flows, old.key)
	old.stop()
	return true
}

func (s *echoes) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flows)
}

func (f *echoFlow) touch() { f.moved.Store(time.Now().UnixNano()) }

func (f *echoFlow) idle() time.Duration { return time.Since(time.Unix(0, f.moved.Load())) }

func (f *echoFlow) stop() { f.once.Do(func() { close(f.end) }) }

// run carries a flow. When it cannot begin, each request is an attempt of its own.
func (f *echoFlow) run() {
	r := f.key.lane.relay
	defer func() {
		r.echoes.mu.Lock()
		defer r.echoes.mu.Unlock()
		if r.echoes.flows[f.key] == f {
			delete(r.echoes.flows, f.key)
		}
	}()
	first := <-f.queue
	s, w := f.open(&first)
	if s == nil {
		return
	}
	defer w.release()
	r.counts.flows.Add(1)
	var last atomic.Pointer[datagram] // whose head errors quote
	last.Store(&first)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.stop()
		f.inward(s, w, &last)
	}()
	f.outward(s, &last, first)
	s.close() // ends inward
	<-done
}

// open chooses the way and makes the outer socket. Nil: the twin was told.
func (f *echoFlow) open(d *datagram) (*echoSocket, *route) {
	l := f.key.lane
	proto := uint8(unix.IPPROTO_ICMP)
	if d.dst.Is6() {
		proto = unix.IPPROTO_ICMPV6
	}
	dst := l.target(stackAddr(d.dst), 0)
	w, no := l.choose(proto, netip.AddrPortFrom(d.src, 0), dst)
	if no != nil {
		l.refuse(d.quote(), no)
		return nil, nil
	}
	s, err := openEcho(w, dst)
	if err != nil {
		w.release()
		l.fail(d.quote(), err)
		return nil, nil
	}
	return s, w
}

// outward sends requests until the flow is idle or given up.
func (f *echoFlow) outward(s *echoSocket, last *atomic.Pointer[datagram], d datagram) {
	limit := f.key.lane.relay.idle.Echo
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		f.touch()
		now := d // its own: errors are read beside
		last.Store(&now)
		f.request(s, &now)
		for waiting := true; waiting; {
			select {
			case d = <-f.queue:
				waiting = false
			case <-f.end:
				return
			case <-timer.C:
				left := limit - f.idle()
				if left <= 0 {
					return
				}
				timer.Reset(left)
			}
		}
	}
}

// request sends one. An error that an earlier request met is reported by the next
// call on the socket, but it is in the queue of errors too: so it is tried again.
func (f *echoFlow) request(s *echoSocket, d *datagram) {
	l := f.key.lane
	var err error
	for range 2 {
		err = s.send(d)
		switch {
		case err == nil, errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			return
		case errors.Is(err, unix.EMSGSIZE):
			if mtu, err := s.pathMTU(); err == nil && d.whole {
				l.tooBig(d.quote(), mtu)
			}
			return
		}
	}
	l.fail(d.quote(), err)
}

// inward passes on replies, and errors of routers and of the destination.
func (f *echoFlow) inward(s *echoSocket, w *route, last *atomic.Pointer[datagram]) {
	oob := make([]byte, oobSize)
	confirmed := false
	for {
		e, err := s.receive(oob)
		if err != nil {
			return
		}
		f.touch()
		switch {
		case e.about != nil:
			f.complain(s, &e, last.Load())
		case !confirmed:
			if no := s.confirm(w); no != nil {
				e.done()
				f.key.lane.refuse(last.Load().quote(), no)
				return
			}
			confirmed = true
			f.reply(&e)
		default:
			f.reply(&e)
		}
		e.done()
	}
}

func (f *echoFlow) reply(e *event) {
	binary.BigEndian.PutUint16(e.message[icmpID:], f.key.id)
	f.key.lane.writeIP(wrapICMP(f.key.dst, f.key.src, e.ttl, 0, e.message))
}

// complain passes on an ICMP error about the request that it quotes.
func (f *echoFlow) complain(s *echoSocket, e *event, d *datagram) {
	if binary.BigEndian.Uint16(e.message[icmpID:]) != s.id {
		return
	}
	const most = 512 // of the packet quoted, as routers do
	m := e.message[:min(len(e.message), most)]
	setID(m, f.key.id)
	quote := d.quote()
	f.key.lane.passOn(append(quote[:len(quote)-icmpHeader], m...), e)
}
