package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
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
			letGo(fd)
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
		letGo(fd)
	}
	return ask{}, -1, fmt.Errorf("read question: %w", err)
}

// letGo closes a descriptor of the relay's, if there is one (-1). The last close of
// a socket waits as long as its owner wished (SO_LINGER).
func letGo(fd int) {
	if fd < 0 {
		return
	}
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{}) // it may be no socket
	unix.Close(fd)
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
		if err = k.admit(*q.Admit, fd); err == nil {
			h, ok := k.ways.(way.Holder)
			a.Held = ok && h.Holds(*q.Admit)
		}
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
