package nettwin

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/sockdiag"
)

// tableName is the twin's one nftables table. "list ruleset" inside shows it.
const tableName = "netsandbox"

const dnsPort = 53

// pollEvery is how often the twin is asked who listens: a port belongs to the
// inside as soon as something inside listens on it, and no event says so. The
// host is asked at every hostPolls-th time; both together cost a fully relayed
// twin 2 ms of processor time a second.
const (
	pollEvery = 200 * time.Millisecond
	hostPolls = 5
)

// loopback relays chosen services of the host's loopback and own addresses. A
// service is redirected exactly while the host listens there and nothing inside
// does, so that a refused connection is refused inside too: a kernel listener
// accepts before anybody can ask the host.
type loopback struct {
	relay      *relay.Process
	table      *nft.Table
	twin, host *sockdiag.Conn
	own        map[uint16]bool // ports of our listeners in the twin
	tcp        map[bool]uint16 // by "is IPv6": where streams are redirected to
	udp        map[netip.Addr]uint16
	servers    []netip.Addr // name servers on the host's own addresses

	mu       sync.Mutex
	onHost   []sockdiag.Socket // as of the last time it was asked
	ports    []uint16
	released map[uint16]bool
	current  []nft.Redirect
	stop     chan struct{}
	done     chan struct{}
}

// openLoopback makes listeners and table in the twin and begins to watch.
func (t *Twin) openLoopback(servers []netip.Addr) (*loopback, error) {
	l := &loopback{
		relay: t.relay, servers: servers, own: map[uint16]bool{}, tcp: map[bool]uint16{}, udp: map[netip.Addr]uint16{},
		released: map[uint16]bool{}, stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := l.open(int(t.ns.Fd()), int(t.host.Fd())); err != nil {
		close(l.done)
		return nil, errors.Join(fmt.Errorf("open loopback relay: %w", err), l.close())
	}
	go l.watch()
	return l, nil
}

func (l *loopback) open(twin, host int) (err error) {
	if l.table, err = nft.Make(twin, tableName); err != nil {
		return err
	}
	if l.twin, err = sockdiag.Dial(twin); err != nil {
		return err
	}
	if l.host, err = sockdiag.Dial(host); err != nil {
		return err
	}
	for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		p, err := l.listen(twin, "tcp", a, relay.Listen{Network: "tcp"})
		if err != nil {
			if a.Is6() { // IPv6 may be off
				continue
			}
			return err
		}
		l.tcp[a.Is6()] = p
		for _, s := range l.servers {
			if s.Is6() != a.Is6() {
				continue
			}
			if l.udp[s], err = l.listen(twin, "udp", a, relay.Listen{Network: "udp", To: netip.AddrPortFrom(s, dnsPort)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// listen opens a socket in the twin and hands it to the relay.
func (l *loopback) listen(twin int, network string, at netip.Addr, what relay.Listen) (uint16, error) {
	var f *os.File
	var port int
	err := netns.Do(twin, func() error {
		addr := netip.AddrPortFrom(at, 0).String()
		if network == "udp" {
			c, err := net.ListenPacket("udp", addr)
			if err != nil {
				return err
			}
			defer c.Close()
			port = c.LocalAddr().(*net.UDPAddr).Port
			f, err = c.(*net.UDPConn).File()
			return err
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		defer ln.Close()
		port = ln.Addr().(*net.TCPAddr).Port
		f, err = ln.(*net.TCPListener).File()
		return err
	})
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if _, err := l.relay.Do(relay.Request{Listen: &what}, f); err != nil {
		return 0, fmt.Errorf("hand over listener: %w", err)
	}
	l.own[uint16(port)] = true
	return uint16(port), nil
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
		delete(l.released, p)
		if !slices.Contains(l.ports, p) {
			l.ports = append(l.ports, p)
		}
	}
	a := &relay.Allow{Ports: l.ports}
	for _, s := range l.servers {
		a.Exact = append(a.Exact, netip.AddrPortFrom(s, dnsPort))
	}
	// First the relay, then the redirection: the other way round a connection in
	// between would be reset.
	if _, err := l.relay.Do(relay.Request{Allow: a}, nil); err != nil {
		return fmt.Errorf("allow ports: %w", err)
	}
	return l.refresh(true)
}

// refresh redirects what the host offers and the inside does not.
func (l *loopback) refresh(askHost bool) error {
	if askHost {
		host, err := l.host.Listening()
		if err != nil {
			return err
		}
		l.onHost = host
	} else if len(l.current) == 0 {
		return nil // nothing is redirected, so there is nothing to take back
	}
	inside, err := l.twin.Listening()
	if err != nil {
		return err
	}
	inside = slices.DeleteFunc(inside, func(s sockdiag.Socket) bool { return l.own[s.Addr.Port()] })
	var rs []nft.Redirect
	for _, p := range l.ports {
		// Released for good: were the port given back when the listener ends, a
		// check of a daemon that crashed inside would be answered by the host's.
		if slices.ContainsFunc(inside, func(s sockdiag.Socket) bool { return s.Proto == unix.IPPROTO_TCP && s.Addr.Port() == p }) {
			l.released[p] = true
		}
		if !l.released[p] {
			rs = append(rs, l.mirrored(p)...)
		}
	}
	for _, s := range l.servers {
		rs = append(rs, l.resolver(inside, s)...)
	}
	slices.SortFunc(rs, order)
	if rs = slices.Compact(rs); slices.Equal(rs, l.current) {
		return nil
	}
	if err := l.table.Set(rs); err != nil {
		return err
	}
	l.current = rs
	return nil
}

// mirrored is one redirection for each address on which the host listens.
func (l *loopback) mirrored(port uint16) []nft.Redirect {
	var rs []nft.Redirect
	for _, s := range l.onHost {
		if s.Proto != unix.IPPROTO_TCP || s.Addr.Port() != port {
			continue
		}
		addrs := []netip.Addr{s.Addr.Addr().Unmap()}
		if addrs[0] == netip.IPv6Unspecified() && !s.Only6 {
			addrs = append(addrs, netip.IPv4Unspecified())
		}
		for _, a := range addrs {
			if to := l.tcp[a.Is6()]; to != 0 {
				rs = append(rs, nft.Redirect{Proto: unix.IPPROTO_TCP, Addr: a, Port: port, To: to})
			}
		}
	}
	return rs
}

// resolver is the redirection of one name server, by each protocol that the
// host answers and the inside does not.
func (l *loopback) resolver(inside []sockdiag.Socket, server netip.Addr) []nft.Redirect {
	var rs []nft.Redirect
	at := netip.AddrPortFrom(server, dnsPort)
	for proto, to := range map[uint8]uint16{unix.IPPROTO_TCP: l.tcp[server.Is6()], unix.IPPROTO_UDP: l.udp[server]} {
		takes := func(s sockdiag.Socket) bool { return s.Proto == proto && s.Takes(at) }
		if to != 0 && slices.ContainsFunc(l.onHost, takes) && !slices.ContainsFunc(inside, takes) {
			rs = append(rs, nft.Redirect{Proto: proto, Addr: server, Port: dnsPort, To: to})
		}
	}
	return rs
}

func order(a, b nft.Redirect) int {
	return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.To, b.To))
}

// taken lists the ports that the inside took over.
func (l *loopback) taken() []uint16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []uint16
	for p := range l.released {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

func (l *loopback) close() error {
	close(l.stop)
	<-l.done
	var errs []error
	if l.table != nil {
		errs = append(errs, l.table.Close())
	}
	if l.twin != nil {
		errs = append(errs, l.twin.Close())
	}
	if l.host != nil {
		errs = append(errs, l.host.Close())
	}
	return errors.Join(errs...)
}
