package nettwin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// waysLab is a [testLab] whose host forwards nothing, drops what it would forward
// and filters by reverse path, with somebody who makes it go the twin's ways.
type waysLab struct {
	*testLab
	keeper *testKeeper
}

// servers are the server's addresses on gw1's side: v4, v6.
var servers = [2]string{"203.0.113.80", "[2001:db8:80::80]"}

// How the server sees a client that came by each gateway: v4, v6.
var (
	byGW1 = [2]string{"one 192.0.2.2", "one 2001:db8:1::2"}
	byGW2 = [2]string{"two 198.51.100.2", "two 2001:db8:2::2"}
	byGW3 = [2]string{"three 192.0.2.2", "three 2001:db8:1::2"}
)

func newWaysLab(t *testing.T) *waysLab {
	t.Helper()
	l := &waysLab{testLab: newLab(t, nstest.NFT, nstest.Tool("nft"), nstest.Tool("ip"))}
	must(t, errors.Join(l.host.Sysctl("ipv4/ip_forward", "0"), l.host.Sysctl("ipv6/conf/all/forwarding", "0")))
	l.ruleset(t, l.host, "table inet f { chain through { type filter hook forward priority 0; policy drop; }; }")
	l.keeper = newTestKeeper(t, l.host)
	return l
}

func (l *testLab) ruleset(t testing.TB, n *netlab.Node, text string) {
	t.Helper()
	_, err := n.Run(t.Context(), "nft", text)
	must(t, err)
}

// pathsUDP answers datagrams as [testLab.paths] does, from the address that they
// were sent to: a socket that only has a link would take the link's.
func (l *testLab) pathsUDP(t *testing.T, port string) {
	t.Helper()
	for _, link := range []string{"one", "two", "three"} {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) {
				err = errors.Join(
					unix.BindToDevice(int(fd), link),
					unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1),
					unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1),
				)
			}), err)
		}}
		must(t, l.server.Do(func() error {
			pc, err := lc.ListenPacket(t.Context(), "udp", ":"+port)
			if err != nil {
				return err
			}
			t.Cleanup(func() { pc.Close() })
			go func(c *net.UDPConn) {
				b, oob := make([]byte, 64), make([]byte, 128)
				for {
					_, on, _, from, err := c.ReadMsgUDPAddrPort(b, oob)
					if err != nil {
						return
					}
					// What says where a datagram came to says as well where one comes from.
					_, _, _ = c.WriteMsgUDPAddrPort([]byte(link+" "+from.Addr().Unmap().String()), oob[:on], from)
				}
			}(pc.(*net.UDPConn))
			return nil
		}))
	}
}

// limits lists the limits met since the twin was made.
func (l *testLab) limits(t testing.TB) []way.Limit {
	t.Helper()
	ls, _, err := l.twin.Limits(0)
	must(t, err)
	return ls
}

// testKeeper makes lanes on a lab's host in the plainest way: a rule by mark, a
// table with one route.
type testKeeper struct {
	h *netlink.Handle

	mu       sync.Mutex
	tables   map[way.Lane]int
	admitted map[way.Flow]bool
	most     int // admitted at once
	// translated is what the host's nat is said to do.
	translated func(way.Flow) (netip.AddrPort, error)
	// refuse is the answer to every lane when it is set.
	refuse *way.Limit
}

const (
	keeperTable = 5000
	keeperMark  = 0x5b000000
	keeperPref  = 5100
)

func newTestKeeper(t testing.TB, host *netlab.Node) *testKeeper {
	t.Helper()
	k := &testKeeper{tables: map[way.Lane]int{}, admitted: map[way.Flow]bool{}}
	must(t, host.Do(func() (err error) {
		k.h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	}))
	t.Cleanup(k.h.Close)
	return k
}

func (k *testKeeper) Lane(l way.Lane) (uint32, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse != nil {
		return 0, k.refuse
	}
	if n := k.tables[l]; n != 0 {
		return keeperMark | uint32(n), nil
	}
	n := len(k.tables) + 1
	af, every := unix.AF_INET, &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if l.Six {
		af, every = unix.AF_INET6, &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	route := &netlink.Route{LinkIndex: l.Index, Table: keeperTable + n, Dst: every, Protocol: 91}
	switch {
	case l.NextHop.Is6() && !l.Six:
		route.Via, route.Flags = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: l.NextHop.AsSlice()}, int(netlink.FLAG_ONLINK)
	case l.NextHop.IsValid():
		route.Gw, route.Flags = l.NextHop.AsSlice(), int(netlink.FLAG_ONLINK)
	default:
		route.Scope = netlink.SCOPE_LINK
	}
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Mark, rule.Table = af, keeperPref, keeperMark|uint32(n), keeperTable+n
	if err := errors.Join(k.h.RouteReplace(route), k.h.RuleAdd(rule)); err != nil {
		return 0, fmt.Errorf("make lane %v: %w", l, err)
	}
	k.tables[l] = n
	return keeperMark | uint32(n), nil
}

func (k *testKeeper) Admit(f way.Flow) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.admitted[f] = true
	k.most = max(k.most, len(k.admitted))
	if f.Lane.Six {
		return nil
	}
	return k.h.RuleAdd(k.rule(f))
}

func (k *testKeeper) Release(f way.Flow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.admitted, f)
	if !f.Lane.Six {
		_ = k.h.RuleDel(k.rule(f)) // what is left, the test sees
	}
}

func (k *testKeeper) rule(f way.Flow) *netlink.Rule {
	r := netlink.NewRule()
	one := func(a netip.Addr) *net.IPNet {
		return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
	}
	// The answer's source is the flow's destination.
	r.Family, r.Priority, r.Table = unix.AF_INET, keeperPref, keeperTable+k.tables[f.Lane]
	r.Src, r.Dst, r.IPProto = one(f.Src.Addr()), one(f.Dst.Addr()), int(f.Proto)
	r.Sport, r.Dport = netlink.NewRulePortRange(f.Src.Port(), f.Src.Port()), netlink.NewRulePortRange(f.Dst.Port(), f.Dst.Port())
	return r
}

func (k *testKeeper) Translated(f way.Flow) (netip.AddrPort, error) {
	if k.translated == nil {
		return netip.AddrPort{}, nil
	}
	return k.translated(f)
}

// open counts the flows that are let in.
func (k *testKeeper) open() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.admitted)
}

var _ way.Keeper = (*testKeeper)(nil)

// remove takes every lane away.
func (k *testKeeper) remove() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for l, n := range k.tables {
		af := unix.AF_INET
		if l.Six {
			af = unix.AF_INET6
		}
		rule := netlink.NewRule()
		rule.Family, rule.Priority, rule.Mark, rule.Table = af, keeperPref, keeperMark|uint32(n), keeperTable+n
		errs = append(errs, k.h.RuleDel(rule))
		routes, err := k.h.RouteListFiltered(af, &netlink.Route{Table: keeperTable + n}, netlink.RT_FILTER_TABLE)
		errs = append(errs, err)
		for _, r := range routes {
			errs = append(errs, k.h.RouteDel(&r))
		}
	}
	clear(k.tables)
	return errors.Join(errs...)
}
