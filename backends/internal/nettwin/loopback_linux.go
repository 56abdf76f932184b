package nettwin

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/sockdiag"
)

// tableName is the twin's one nftables table. "list ruleset" inside shows it.
const tableName = "netsandbox"

const dnsPort = 53

// pollEvery is how often the twin is asked who listens: a port belongs to the
// inside from then on, and no event says so. (That a socket inside is served
// first needs no poll, the kernel looks for one with every packet.) The host is
// asked at every hostPolls-th time, and so is the twin when it has no port to let
// go; both together cost a fully relayed twin 2 ms of processor time a second.
const (
	pollEvery = 200 * time.Millisecond
	hostPolls = 5
)

// loopback relays chosen services of the host's loopback and own addresses. A
// service is captured exactly while the host offers it and nothing inside does,
// so that a refused connection is refused inside too: a kernel listener accepts
// before anybody can ask the host.
type loopback struct {
	relay      *relay.Process
	table      *nft.Table
	twin, host *sockdiag.Conn
	gates      gates
	answers    *answers
	servers    []netip.Addr // name servers on the host's own addresses
	diverts    [2]bool      // by "is IPv6": the host routes foreign destinations to itself
	cut        bool         // nothing is captured

	mu       sync.Mutex
	onHost   []sockdiag.Socket // as of the last time it was asked
	ports    []uint16
	released map[service]bool
	current  []nft.Capture
	stop     chan struct{}
	done     chan struct{}
}

// service is a port of one protocol.
type service struct {
	proto uint8
	port  uint16
}

// openLoopback makes sockets and table in the twin and begins to watch.
func (t *Twin) openLoopback(host *network, servers []netip.Addr) (*loopback, error) {
	l := &loopback{
		relay: t.relay, servers: servers, gates: gates{}, diverts: host.diverts(), cut: t.opt.Cut,
		released: map[service]bool{}, stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := l.open(int(t.ns.Fd()), int(t.host.Fd())); err != nil {
		close(l.done)
		return nil, errors.Join(fmt.Errorf("open loopback relay: %w", err), l.close())
	}
	go l.watch()
	return l, nil
}

func (l *loopback) open(twin, host int) (err error) {
	if l.table, err = nft.Make(twin, tableName, true); err != nil {
		return err
	}
	// A capture that takes nothing: a kernel that lacks what they need says so now.
	never := nft.Capture{Proto: unix.IPPROTO_TCP, Addr: gateV4, Port: 1, To: netip.AddrPortFrom(gateV4, 1)}
	if err := l.table.Set([]nft.Capture{never}); errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("%w: this kernel has no nft_socket or nft_tproxy (4.19)", unix.EOPNOTSUPP)
	} else if err != nil {
		return err
	}
	if l.twin, err = sockdiag.Dial(twin); err != nil {
		return err
	}
	if l.host, err = sockdiag.Dial(host); err != nil {
		return err
	}
	if l.answers, err = openAnswers(l.relay, twin, host); err != nil {
		return err
	}
	return l.gates.open(twin, l.relay, l.diverts)
}

func (l *loopback) watch() {
	defer close(l.done)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			l.mu.Lock()
			_ = l.refresh(n%hostPolls == 0) // what cannot be read now is read at the next tick
			l.mu.Unlock()
		}
	}
}

// add puts ports on the allow-list. One that the inside took over before is
// taken back: the caller asked for the host's.
func (l *loopback) add(ports []uint16) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range ports {
		delete(l.released, service{unix.IPPROTO_TCP, p})
		delete(l.released, service{unix.IPPROTO_UDP, p})
		if !slices.Contains(l.ports, p) {
			l.ports = append(l.ports, p)
		}
	}
	a := &relay.Allow{Ports: l.ports}
	for _, s := range l.servers {
		a.Exact = append(a.Exact, netip.AddrPortFrom(s, dnsPort))
	}
	// First the relay, then the capture: the other way round a connection in
	// between would be reset.
	if _, err := l.relay.Do(relay.Request{Allow: a}, nil); err != nil {
		return fmt.Errorf("allow ports: %w", err)
	}
	return l.refresh(true)
}

// refresh captures what the host offers and the inside does not. In a twin
// without a way out nothing is: a listener of ours would accept before it could
// refuse.
func (l *loopback) refresh(askHost bool) error {
	if l.cut {
		return nil
	}
	if askHost {
		host, err := l.host.Listening()
		if err != nil {
			return err
		}
		l.onHost = host
		if _, err := l.table.Renew(l.current); err != nil {
			return err
		}
	} else if len(l.ports) == 0 {
		return nil // there is nothing to let go
	}
	inside, err := l.twin.Listening()
	if err != nil {
		return err
	}
	inside = slices.DeleteFunc(inside, l.gates.own)
	l.release(inside)
	cs := l.captures(inside)
	if slices.Equal(cs, l.current) {
		return nil
	}
	if err := l.table.Set(cs); err != nil {
		return err
	}
	l.current = cs
	return nil
}

// release gives ports to the inside where something listens, and for good: were
// one given back when the listener ends, a check of a daemon that crashed inside
// would be answered by the host's. A name server's is given back, since a stub
// that is configured again closes and opens its sockets.
func (l *loopback) release(inside []sockdiag.Socket) {
	for _, s := range inside {
		if slices.Contains(l.ports, s.Addr.Port()) {
			l.released[service{s.Proto, s.Addr.Port()}] = true
		}
	}
}

// taken lists the ports that the inside took over.
func (l *loopback) taken() []uint16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []uint16
	for s := range l.released {
		out = append(out, s.port)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (l *loopback) close() error {
	close(l.stop)
	<-l.done
	var errs []error
	if l.table != nil {
		errs = append(errs, l.table.Close())
	}
	for _, c := range []*sockdiag.Conn{l.twin, l.host} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if l.answers != nil {
		errs = append(errs, l.answers.close())
	}
	return errors.Join(errs...)
}
