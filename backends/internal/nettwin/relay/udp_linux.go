package relay

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// takeUDP takes every datagram that belongs to no flow yet.
func (r *Relay) takeUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	l := r.lane(pkt.NICID)
	if l == nil || r.cut {
		return true
	}
	if !r.datagrams.room() {
		r.limit(crowded())
		return true
	}
	return l.udp.HandlePacket(id, pkt)
}

// udpFlow is one pair of a datagram endpoint in the stack and an outer socket
// connected to the same destination.
type udpFlow struct {
	lane  *lane
	id    stack.TransportEndpointID
	ep    tcpip.Endpoint
	queue *waiter.Queue
	out   *net.UDPConn
	path  path

	moved    atomic.Int64 // nanoseconds of the last datagram, either way
	answered atomic.Bool
	end      chan struct{}
	once     sync.Once
}

// startUDP begins a flow with its first datagram, which is already queued in the
// endpoint that the request makes.
func (l *lane) startUDP(req *udp.ForwarderRequest) bool {
	id := req.ID()
	f := &udpFlow{lane: l, id: id, queue: &waiter.Queue{}, end: make(chan struct{})}
	f.path.six, f.path.limit = id.LocalAddress.Len() != header.IPv4AddressSize, int(l.hop.itf.MTU)
	ep, err := req.CreateEndpoint(f.queue)
	if err != nil {
		return true
	}
	f.ep = ep
	ep.SocketOptions().SetReceiveTTL(true)
	ep.SocketOptions().SetReceiveHopLimit(true)
	f.touch()
	l.relay.datagrams.add(f)
	go f.run()
	return true
}

func (f *udpFlow) run() {
	r := f.lane.relay
	defer r.datagrams.remove(f)
	defer f.ep.Close()
	w, no := f.lane.choose(unix.IPPROTO_UDP, source(f.id.RemoteAddress, f.id.RemotePort), f.target())
	if no != nil {
		f.lane.refuse(quoteUDP(f.id), no)
		return
	}
	defer w.release()
	if err := f.dial(w); err != nil {
		f.tell(err)
		return
	}
	if !f.first(w) {
		f.out.Close()
		return
	}
	r.counts.flows.Add(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.out.Close() // ends inward
		f.outward()
	}()
	f.inward(w)
	f.stop()
	<-done
}

func (f *udpFlow) target() netip.AddrPort { return f.lane.target(f.id.LocalAddress, f.id.LocalPort) }

// dial connects the outer socket.
func (f *udpFlow) dial(w *route) error {
	d := net.Dialer{Control: func(network, addr string, c syscall.RawConn) error {
		var err error
		cerr := c.Control(func(fd uintptr) { err = hear(int(fd), f.path.six) })
		return errors.Join(cerr, err, w.control(network, addr, c))
	}}
	c, err := d.DialContext(context.Background(), "udp", f.target().String())
	if err != nil {
		return err
	}
	f.out = c.(*net.UDPConn)
	return nil
}

// stop ends the flow. It may be called more than once.
func (f *udpFlow) stop() { f.once.Do(func() { close(f.end) }) }

// first sends the datagram that the flow began with, and looks what the host made
// of it before any answer is passed on.
func (f *udpFlow) first(w *route) bool {
	var b bytes.Buffer
	got, terr := f.ep.Read(&b, tcpip.ReadOptions{})
	if terr != nil || !f.send(b.Bytes(), got.ControlMessages) {
		return false
	}
	if no := w.confirm(); no != nil {
		f.lane.refuse(nil, no)
		return false
	}
	return true
}

// send sends a datagram as it is in the twin. An error that an earlier one met is
// reported by the next call on the socket, but inward reads of it too: so it is
// tried again. False: the flow is over.
func (f *udpFlow) send(b []byte, with tcpip.ReceivableControlMessages) bool {
	ttl := with.TTL
	if with.HasHopLimit {
		ttl = with.HopLimit
	}
	if err := f.path.lives(f.out, ttl); err != nil {
		return f.tell(err)
	}
	var err error
	for range 2 {
		if _, err = f.out.Write(b); err == nil || errors.Is(err, unix.EMSGSIZE) {
			break
		}
	}
	if mtu, tell := f.path.narrow(f.out, len(b)); tell {
		f.lane.tooBig(quoteUDP(f.id), mtu)
	}
	return err == nil || f.tell(err)
}

func (f *udpFlow) touch() { f.moved.Store(time.Now().UnixNano()) }

func (f *udpFlow) idle() time.Duration {
	return time.Since(time.Unix(0, f.moved.Load()))
}

// tell passes an error of the outer socket on to the twin and reports whether
// it was one that a flow survives.
func (f *udpFlow) tell(err error) bool {
	if errors.Is(err, unix.ECONNREFUSED) {
		f.lane.relay.counts.refused.Add(1)
		f.lane.unreachable(quoteUDP(f.id), portUnreachable)
		return true
	}
	if errors.Is(err, unix.EMSGSIZE) { // the kernel now knows the path's MTU and cuts
		return true
	}
	return f.lane.fail(quoteUDP(f.id), err)
}

// patience is how long the flow lives on without a datagram.
func (f *udpFlow) patience() time.Duration {
	if f.answered.Load() {
		return f.lane.relay.idle.Answered
	}
	return f.lane.relay.idle.Unanswered
}

// outward sends the twin's datagrams until the flow is idle or stopped.
func (f *udpFlow) outward() {
	e, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	f.queue.EventRegister(&e)
	defer f.queue.EventUnregister(&e)
	timer := time.NewTimer(f.patience())
	defer timer.Stop()
	var b bytes.Buffer
	for {
		b.Reset()
		got, terr := f.ep.Read(&b, tcpip.ReadOptions{})
		switch terr.(type) {
		case nil:
			f.touch()
			if !f.send(b.Bytes(), got.ControlMessages) {
				return
			}
		case *tcpip.ErrWouldBlock:
			select {
			case <-ready:
			case <-f.end:
				return
			case <-timer.C:
				left := f.patience() - f.idle()
				if left <= 0 {
					return
				}
				timer.Reset(left)
			}
		default:
			return
		}
	}
}

// inward sends the answers, and passes on who complained of a datagram.
func (f *udpFlow) inward(w *route) {
	rc, err := f.out.SyscallConn()
	if err != nil {
		return
	}
	oob := make([]byte, oobSize)
	for {
		e, err := receiveEvent(rc, oob)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !f.tell(err) {
				return
			}
		case e.about != nil:
			f.lane.passOn(quoteUDP(f.id), &e)
			if e.about.Errno == uint32(unix.ECONNREFUSED) {
				f.lane.relay.counts.refused.Add(1)
			}
			e.done()
		default:
			err = f.answer(w, e.message)
			e.done()
			if err != nil {
				return
			}
		}
	}
}

// answer passes on one datagram. An empty one is data too.
func (f *udpFlow) answer(w *route, b []byte) error {
	if !f.answered.Load() {
		if no := w.still(); no != nil {
			f.lane.refuse(quoteUDP(f.id), no)
			return no
		}
	}
	f.answered.Store(true)
	f.touch()
	if _, terr := f.ep.Write(bytes.NewReader(b), tcpip.WriteOptions{}); terr != nil {
		if _, full := terr.(*tcpip.ErrNoBufferSpace); !full {
			return errors.New(terr.String())
		}
	}
	return nil
}
