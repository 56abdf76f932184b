package relay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// keep is the twin's end of the second socket. It runs in the process that may
// change the host's routing, so it believes nothing: the relay parses frames of
// whoever is root inside, and one day it may be theirs.
type keep struct {
	conn *net.UnixConn
	ways way.Keeper // nil: the host goes only the ways it goes by itself
	done chan struct{}

	mu    sync.Mutex
	links map[int]bool // interfaces of the host that the relay was given

	flowMu sync.Mutex             // held while a flow is let in or taken back: the order counts
	flows  map[way.Flow]*admitted // by everything but the lane
}

// admitted is a flow that was let in.
type admitted struct {
	flow  way.Flow
	times int
}

func newKeep(c *net.UnixConn, ways way.Keeper) *keep {
	k := &keep{
		conn: c, ways: ways, done: make(chan struct{}),
		links: map[int]bool{}, flows: map[way.Flow]*admitted{},
	}
	go k.serve()
	return k
}

// link lets lanes on one interface be asked for.
func (k *keep) link(index int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.links[index] = true
}

// close ends the conversation and returns when everything that was let in has
// been taken back.
func (k *keep) close() {
	k.conn.Close()
	<-k.done
}

// serve answers until the relay is gone.
func (k *keep) serve() {
	defer close(k.done)
	var workers sync.WaitGroup
	slots := make(chan struct{}, maxAsks)
	pace := pacer{left: asksBurst, at: time.Now()}
	b := make([]byte, maxAsk)
	for {
		q, fd, err := readAsk(k.conn, b)
		if err != nil {
			break
		}
		pace.wait()
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			a := k.answer(q, fd)
			if fd >= 0 {
				unix.Close(fd)
			}
			a.ID = q.ID
			if b, err := json.Marshal(a); err == nil && len(b) <= maxAsk {
				_, _ = k.conn.Write(b) // the relay is gone: the next read says so
			}
		})
	}
	k.conn.Close()
	workers.Wait()
	k.flowMu.Lock()
	defer k.flowMu.Unlock()
	for _, f := range k.flows {
		k.ways.Release(f.flow)
	}
	clear(k.flows)
}

// readAsk reads one question and its descriptor, or -1. A packet that is not a
// question ends the conversation.
func readAsk(c *net.UnixConn, b []byte) (ask, int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, on, flags, _, err := c.ReadMsgUnix(b, oob)
	fds := rights(oob[:on])
	fd := -1
	if len(fds) > 0 {
		fd = fds[0]
	}
	var q ask
	switch {
	case err != nil:
	case n == 0 || len(fds) > 1 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = unix.EBADMSG
	default:
		err = json.Unmarshal(b[:n], &q)
	}
	if err == nil {
		return q, fd, nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return ask{}, -1, fmt.Errorf("read question: %w", err)
}

// rights lists the descriptors in control messages.
func rights(oob []byte) []int {
	var out []int
	ms, _ := unix.ParseSocketControlMessage(oob)
	for i := range ms {
		fds, _ := unix.ParseUnixRights(&ms[i])
		out = append(out, fds...)
	}
	return out
}

func (k *keep) answer(q ask, fd int) told {
	var a told
	var err error
	switch {
	case k.ways == nil && (q.Lane != nil || q.Admit != nil):
		err = &way.Limit{Kind: way.Route, Reason: "the host does not go this way for it, and nobody here makes it"}
	case k.ways == nil:
	case q.Lane != nil:
		a.Mark, err = k.lane(*q.Lane)
	case q.Admit != nil:
		err = k.admit(*q.Admit, fd)
	case q.Release != nil:
		k.release(*q.Release)
	case q.Translated != nil:
		if err = sane(*q.Translated); err == nil {
			a.To, err = k.ways.Translated(*q.Translated)
		}
	default:
		err = errors.New("question is not understood")
	}
	if l, ok := errors.AsType[*way.Limit](err); ok {
		t := tidy(*l)
		a.Limit = &t
	} else if err != nil {
		a.Err = err.Error()[:min(len(err.Error()), maxReason)]
	}
	return a
}

// lane has a lane made, if it is one that this twin can have. How many there are
// is for the keeper to bound.
func (k *keep) lane(l way.Lane) (uint32, error) {
	if err := k.possible(l); err != nil {
		return 0, err
	}
	return k.ways.Lane(l)
}

// possible reports what makes a lane none that this twin can have.
func (k *keep) possible(l way.Lane) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.links[l.Index]:
		return &way.Limit{Kind: way.Link, Reason: "it is no interface of this twin"}
	case !nextHop(l):
		return &way.Limit{Kind: way.Route, Reason: "it cannot be a next hop"}
	}
	return nil
}

// nextHop reports whether an address can be the gateway of a lane. An IPv4 route
// may have an IPv6 gateway, not the other way round.
func nextHop(l way.Lane) bool {
	a := l.NextHop
	if !a.IsValid() {
		return true
	}
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.Is4In6() && a.Zone() == "" && (a.Is6() || !l.Six)
}

// sane reports what makes a flow none that a twin can have.
func sane(f way.Flow) error {
	src, dst := f.Src.Addr(), f.Dst.Addr()
	ok := src.IsValid() && dst.IsValid() && src.Zone() == "" && dst.Zone() == "" &&
		!src.IsUnspecified() && !dst.IsUnspecified() && !src.Is4In6() && !dst.Is4In6() &&
		src.Is6() == f.Lane.Six && dst.Is6() == f.Lane.Six
	switch f.Proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		ok = ok && f.Src.Port() != 0 && f.Dst.Port() != 0
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		ok = ok && (f.Proto == unix.IPPROTO_ICMPV6) == f.Lane.Six
	default:
		ok = false
	}
	if !ok {
		return errors.New("it is no flow of a twin")
	}
	return nil
}

// admit lets a flow in if the socket that came with it is bound to its source:
// the port is then the relay's own, and no packet of another process is let in.
func (k *keep) admit(f way.Flow, fd int) error {
	if err := cmp.Or(k.possible(f.Lane), sane(f), owns(fd, f)); err != nil {
		return err
	}
	key := f
	key.Lane = way.Lane{}
	k.flowMu.Lock()
	defer k.flowMu.Unlock()
	old := k.flows[key]
	switch {
	case old != nil && old.flow.Lane == f.Lane:
		old.times++
		return nil
	case old != nil: // an ended one that had the port before
		k.ways.Release(old.flow)
		delete(k.flows, key)
	case len(k.flows) >= maxAdmitted:
		return &way.Limit{Kind: way.Load, Subject: f.Dst.String(), Reason: fmt.Sprintf("a twin has at most %d flows at once on ways of its own", maxAdmitted)}
	}
	if err := k.ways.Admit(f); err != nil {
		return err
	}
	k.flows[key] = &admitted{flow: f, times: 1}
	return nil
}

func (k *keep) release(f way.Flow) {
	key := f
	key.Lane = way.Lane{}
	k.flowMu.Lock()
	defer k.flowMu.Unlock()
	a := k.flows[key]
	if a == nil || a.flow.Lane != f.Lane {
		return
	}
	if a.times--; a.times == 0 {
		k.ways.Release(a.flow)
		delete(k.flows, key)
	}
}

// owns reports whether a socket is bound to the source of a flow.
func owns(fd int, f way.Flow) error {
	if fd < 0 {
		return errors.New("the flow has no socket")
	}
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return fmt.Errorf("read protocol of socket: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return fmt.Errorf("read address of socket: %w", err)
	}
	if at := addrPort(sa); proto != int(f.Proto) || at != f.Src {
		return fmt.Errorf("the socket is bound to %s and not to %s", at, f.Src)
	}
	return nil
}

// addrPort is an address of a socket without its zone.
func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// pacer slows a relay down that asks without end: its questions cost time of a
// process that others share.
type pacer struct {
	left float64
	at   time.Time
}

func (p *pacer) wait() {
	now := time.Now()
	p.left = min(asksBurst, p.left+now.Sub(p.at).Seconds()*asksRate) - 1
	p.at = now
	if p.left < 0 {
		time.Sleep(time.Duration(-p.left / asksRate * float64(time.Second)))
	}
}
