package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// udpIdle ends a flow in which nothing moved. It is what conntrack grants a
// flow that was answered at least once (nf_conntrack_udp_timeout_stream is 120,
// without an answer 30).
const udpIdle = 60 * time.Second

// takeUDP takes every datagram that belongs to no flow yet.
func (r *Relay) takeUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	l := r.lane(pkt.NICID)
	if l == nil || r.cut {
		return true
	}
	if r.udpFlows.Load() >= maxUDPFlows {
		r.limit(&way.Limit{Kind: way.Load, Subject: "datagram flows", Reason: fmt.Sprintf("more than %d at once", maxUDPFlows)})
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
	moved atomic.Int64 // nanoseconds of the last datagram, either way
}

// startUDP begins a flow with its first datagram, which is already queued in the
// endpoint that the request makes.
func (l *lane) startUDP(req *udp.ForwarderRequest) bool {
	f := &udpFlow{lane: l, id: req.ID(), queue: &waiter.Queue{}}
	ep, err := req.CreateEndpoint(f.queue)
	if err != nil {
		return true
	}
	f.ep = ep
	l.relay.udpFlows.Add(1)
	go f.run()
	return true
}

func (f *udpFlow) run() {
	r := f.lane.relay
	defer r.udpFlows.Add(-1)
	defer f.ep.Close()
	dst := f.lane.target(f.id.LocalAddress, f.id.LocalPort)
	w, no := f.lane.choose(unix.IPPROTO_UDP, source(f.id.RemoteAddress, f.id.RemotePort), dst)
	if no != nil {
		f.lane.refuse(quoteUDP(f.id), no)
		return
	}
	defer w.release()
	d := net.Dialer{Control: w.control}
	c, err := d.DialContext(context.Background(), "udp", dst.String())
	if err != nil {
		f.tell(err)
		return
	}
	f.out = c.(*net.UDPConn)
	if !f.first(w) {
		f.out.Close()
		return
	}
	r.counts.flows.Add(1)
	f.touch()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer f.out.Close() // ends inward
		f.outward(stop)
	}()
	f.inward()
	close(stop)
	<-done
}

// first sends the datagram that the flow began with, and looks what the host made
// of it before any answer is passed on.
func (f *udpFlow) first(w *route) bool {
	var b bytes.Buffer
	if _, terr := f.ep.Read(&b, tcpip.ReadOptions{}); terr != nil {
		return false
	}
	if _, err := f.out.Write(b.Bytes()); err != nil && !f.tell(err) {
		return false
	}
	if no := w.confirm(); no != nil {
		f.lane.refuse(nil, no)
		return false
	}
	return true
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
	if errors.Is(err, unix.EMSGSIZE) { // the kernel now knows the path's MTU and fragments
		return true
	}
	return f.lane.fail(quoteUDP(f.id), err)
}

// outward sends the twin's datagrams until the flow is idle or stopped.
func (f *udpFlow) outward(stop <-chan struct{}) {
	e, ready := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	f.queue.EventRegister(&e)
	defer f.queue.EventUnregister(&e)
	timer := time.NewTimer(udpIdle)
	defer timer.Stop()
	var b bytes.Buffer
	for {
		b.Reset()
		_, terr := f.ep.Read(&b, tcpip.ReadOptions{})
		switch terr.(type) {
		case nil:
			f.touch()
			if _, err := f.out.Write(b.Bytes()); err != nil && !f.tell(err) {
				return
			}
		case *tcpip.ErrWouldBlock:
			select {
			case <-ready:
			case <-stop:
				return
			case <-timer.C:
				left := udpIdle - f.idle()
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

// inward sends the answers.
func (f *udpFlow) inward() {
	rc, err := f.out.SyscallConn()
	if err != nil {
		return
	}
	for {
		err := f.answer(rc)
		if err != nil && !f.tell(err) {
			return
		}
	}
}

// answer passes on one datagram. An empty one is data too.
func (f *udpFlow) answer(rc syscall.RawConn) error {
	buf, n, err := receive(rc)
	if buf == nil {
		return err
	}
	defer buffers.Put(buf)
	if err != nil {
		return err
	}
	f.touch()
	if _, terr := f.ep.Write(bytes.NewReader(buf[:n]), tcpip.WriteOptions{}); terr != nil {
		if _, full := terr.(*tcpip.ErrNoBufferSpace); !full {
			return errors.New(terr.String())
		}
	}
	return nil
}
