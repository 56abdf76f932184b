package relay

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Bounds of relayed datagrams. The inside decides how many there are.
const (
	maxLoopFlows = 1024    // clients and destinations of one socket
	maxPending   = 64      // datagrams of a flow that wait to be sent
	maxWaiting   = 8 << 20 // bytes of all that wait
)

// datagrams is one socket that takes captured datagrams, and the flows that
// began with one.
type datagrams struct {
	relay *Relay
	kind  LoopKind
	in    *net.UDPConn
	mu    sync.Mutex
	flows map[loopFlow]*loopUDP
}

// loopFlow is a client and the destination as nat in the twin left it.
type loopFlow struct{ client, at netip.AddrPort }

// loopUDP is one flow with a socket on the host.
type loopUDP struct {
	of *datagrams
	passage
	out  *net.UDPConn
	wait chan []byte
}

// serveDatagrams carries what the twin's kernel captured to the same destination
// on the host.
func (r *Relay) serveDatagrams(f *os.File, kind LoopKind) error {
	pc, err := net.FilePacketConn(f)
	f.Close()
	if err != nil {
		return err
	}
	d := &datagrams{relay: r, kind: kind, in: pc.(*net.UDPConn), flows: map[loopFlow]*loopUDP{}}
	go d.run()
	return nil
}

func (d *datagrams) run() {
	buf, oob := make([]byte, 64<<10), make([]byte, 256)
	for {
		n, on, _, from, err := d.in.ReadMsgUDPAddrPort(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		if at, ok := arrivedAt(oob[:on]); ok {
			d.take(loopFlow{netip.AddrPortFrom(from.Addr().Unmap().WithZone(""), from.Port()), at}, slices.Clone(buf[:n]))
		}
	}
}

// arrivedAt reads IP_RECVORIGDSTADDR: where the datagram in front of it was sent.
func arrivedAt(oob []byte) (netip.AddrPort, bool) {
	ms, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, m := range ms {
		switch {
		case m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_ORIGDSTADDR && len(m.Data) >= unix.SizeofSockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(m.Data[4:8])), binary.BigEndian.Uint16(m.Data[2:])), true
		case m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_ORIGDSTADDR && len(m.Data) >= unix.SizeofSockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16([16]byte(m.Data[8:24])), binary.BigEndian.Uint16(m.Data[2:])), true
		}
	}
	return netip.AddrPort{}, false
}

// take gives a datagram to its flow, or begins one. What a full flow does not
// take is lost, as in a full socket.
func (d *datagrams) take(k loopFlow, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.flows[k]
	if f == nil {
		if len(d.flows) >= maxLoopFlows {
			d.relay.counts.dropped.Add(1)
			d.relay.limit(&way.Limit{Kind: way.Load, Subject: k.at.String(), Reason: "too many datagram flows are open"})
			return
		}
		f = &loopUDP{of: d, passage: passage{kind: d.kind, proto: unix.IPPROTO_UDP, client: k.client, at: k.at, to: k.at}, wait: make(chan []byte, maxPending)}
		d.flows[k] = f
		d.relay.udpFlows.Add(1)
		go f.run(k)
	}
	if w := &d.relay.loop.waiting; w.Add(int64(len(b))) <= maxWaiting {
		select {
		case f.wait <- b:
			return
		default:
		}
	}
	d.relay.loop.waiting.Add(-int64(len(b)))
	d.relay.counts.dropped.Add(1)
}

// next is the datagram that waits first; false: there will be no more.
func (f *loopUDP) next() ([]byte, bool) {
	b, ok := <-f.wait
	f.of.relay.loop.waiting.Add(-int64(len(b)))
	return b, ok
}

// run lives as long as the flow.
func (f *loopUDP) run(k loopFlow) {
	err := f.open()
	if err == nil {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.outward()
		}()
		f.inward()
		f.of.drop(k, f)
		<-done
		f.out.Close()
		return
	}
	f.of.relay.turnAway(err)
	// As on a host where nobody is bound: its kernel says so to the client.
	f.unreachable()
	f.of.drop(k, f)
	for ok := true; ok; {
		_, ok = f.next()
	}
}

// drop forgets a flow. Nothing is sent to it any more, so its channel ends.
func (d *datagrams) drop(k loopFlow, f *loopUDP) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.flows, k)
	close(f.wait)
	d.relay.udpFlows.Add(-1)
}

// open makes the socket and sends the first datagram, by which the host's kernel
// decides on the flow.
func (f *loopUDP) open() error {
	r := f.of.relay
	if f.kind == TranslatedDatagrams {
		a, err := r.loop.questions.ask(LoopQuestion{What: LoopOriginal, Proto: f.proto, Src: f.client, Dst: f.at})
		if err != nil {
			return f.limit("what it was translated from cannot be seen: " + err.Error())
		}
		f.to = a.To
	}
	if err := r.admit(&f.passage); err != nil {
		return err
	}
	out, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(f.to))
	if err != nil {
		return f.unanswered(err)
	}
	f.out = out
	first, _ := f.next() // there is one: it began the flow
	if _, err = out.Write(first); err == nil {
		err = r.confirm(f.passage, addrOf(out.LocalAddr()))
	}
	if err != nil {
		out.Close()
		return err
	}
	r.counts.flows.Add(1)
	return nil
}

// outward sends what the client sends until the flow is dropped. A refusal comes
// back as an error of the next read.
func (f *loopUDP) outward() {
	for {
		b, ok := f.next()
		if !ok {
			return
		}
		f.out.SetReadDeadline(time.Now().Add(udpIdle))
		_, _ = f.out.Write(b)
	}
}

// inward sends the answers until the flow is idle.
func (f *loopUDP) inward() {
	rc, err := f.out.SyscallConn()
	if err != nil {
		return
	}
	for {
		f.out.SetReadDeadline(time.Now().Add(udpIdle))
		buf, n, err := receive(rc)
		switch {
		case buf == nil:
			return // idle
		case err == nil:
			f.of.relay.loop.reply(f.at, f.client, buf[:n])
		case errors.Is(err, unix.ECONNREFUSED):
			f.of.relay.counts.refused.Add(1)
			f.unreachable()
		}
		buffers.Put(buf)
		if err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return
		}
	}
}

func (f *loopUDP) unreachable() { f.of.relay.loop.unreachable(f.at, f.client) }
