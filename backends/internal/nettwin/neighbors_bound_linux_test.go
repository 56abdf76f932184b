package nettwin

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// neighborsOf counts the entries that a namespace has in the kernel's tables, but
// those of groups, which make room for any other.
func neighborsOf(t *testing.T, n *netlab.Node, family byte) (count int) {
	t.Helper()
	c, err := rtnl.Dial(int(n.NS().Fd()))
	must(t, err)
	defer c.Close()
	head := make([]byte, unix.SizeofNdMsg)
	head[0] = family
	ms, err := c.Dump(unix.RTM_GETNEIGH, head)
	must(t, err)
	for _, m := range ms {
		if a, ok := rtnl.NeighborAddr(m); ok && !a.IsMulticast() {
			count++
		}
	}
	return count
}

// sweep sends to addresses one after the other and counts those to which something
// could be sent.
func sweep(n *netlab.Node, typ int, from netip.Addr, count int) (sent int, err error) {
	err = n.Do(func() error {
		for range count {
			f, err := open(netip.AddrPortFrom(from, 9), typ)
			if err == nil && typ == unix.SOCK_DGRAM {
				_, err = f.Write([]byte("x"))
			}
			if f != nil {
				f.Close()
			}
			switch {
			case err == nil:
				sent++
			case !errors.Is(err, unix.EPERM): // what the kernel says of a dropped datagram
				return fmt.Errorf("send to %s: %w", from, err)
			}
			from = from.Next()
		}
		return nil
	})
	return sent, err
}

// onLink is a network of each family that a candidate takes for the link's.
var onLink = [2]netip.Addr{netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:18::1")}

// TestScanLeavesTheHostItsNeighbors scans a /16 on the link from inside, by both
// protocols and families, while the host learns neighbours and a circuit works.
// Then root inside flushes what it can, and scans again.
func TestScanLeavesTheHostItsNeighbors(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"), nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	addrs := []string{"203.0.113.80:80", "[2001:db8:80::80]:80"}
	for _, a := range addrs {
		l.seenAs(t, "tcp", a)
	}
	_, mark, err := l.twin.Limits(0)
	must(t, err)
	l.onHostAll(t, "ip route add 198.19.0.0/16 dev eth0\nip route add 2001:db8:19::/64 dev eth0")
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("before anything was changed: %q", got)
	}
	l.run(t, "ip route add 198.18.0.0/16 dev eth0")
	l.run(t, "ip route add 2001:db8:18::/64 dev eth0")
	changed := l.lines(t)
	for _, count := range []int{1<<16 - 2, 1 << 12} {
		l.scanned(t, count, addrs)
		load(t, l.inside, "flush ruleset")
		ls, next, err := l.twin.Limits(mark)
		must(t, err)
		if mark = next; !slices.Contains(ls, way.Crowded) {
			t.Errorf("limits %v, want %v", ls, way.Crowded)
		}
	}
	if ls, _, err := l.twin.Limits(mark); err != nil || slices.Contains(ls, way.Crowded) {
		t.Errorf("after the scan: limits %v, %v", ls, err)
	}
	if got := l.lines(t); !slices.Equal(got, changed) || len(got) != 2 {
		t.Errorf("difference %q, want the routes", got)
	}
}

// scanned scans both networks while addrs answer, and looks at both ends.
func (l *testLab) scanned(t *testing.T, count int, addrs []string) {
	t.Helper()
	var scans sync.WaitGroup
	var running atomic.Int32
	errs := make([]error, 4)
	for i, typ := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		for f, from := range onLink {
			running.Add(1)
			scans.Go(func() {
				_, errs[2*i+f] = sweep(l.inside, typ, from, count)
				running.Add(-1)
			})
		}
	}
	rounds := 0
	for ; running.Load() > 0 || rounds == 0; rounds++ {
		for _, a := range addrs {
			l.seenAs(t, "tcp", a)
		}
		if rounds == 0 {
			l.learns(t, "198.19.0.1")
			l.learns(t, "2001:db8:19::1")
		}
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			if n := neighborsOf(t, l.inside, family); n > way.MaxNeighbors+20 {
				t.Fatalf("%d neighbours of family %d, want %d at most", n, family, way.MaxNeighbors)
			}
		}
	}
	scans.Wait()
	must(t, errors.Join(errs...))
	t.Logf("%d rounds beside the scan; %d and %d neighbours", rounds, neighborsOf(t, l.inside, unix.AF_INET), neighborsOf(t, l.inside, unix.AF_INET6))
}

// learns has the host come to know 200 neighbours.
func (l *testLab) learns(t *testing.T, first string) {
	t.Helper()
	const count = 200
	from, family := netip.MustParseAddr(first), byte(unix.AF_INET)
	if from.Is6() {
		family = unix.AF_INET6
	}
	sent, err := sweep(l.host, unix.SOCK_DGRAM, from, count)
	must(t, err)
	if n := neighborsOf(t, l.host, family); sent != count || n < count {
		t.Errorf("from %s on the host sent to %d new neighbours of %d, and has %d", from, sent, count, n)
	}
}

// TestForwardedScanIsBounded scans from a namespace that root inside made, through
// the twin.
func TestForwardedScanIsBounded(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"))
	l.mirror(t, Options{})
	nested, err := l.Node("nested")
	must(t, err)
	must(t, errors.Join(
		l.Wire(nested, "up", l.inside, "down"), nested.Address("up", "10.99.0.2/24"), l.inside.Address("down", "10.99.0.1/24"),
		nested.Route("0.0.0.0/0", "10.99.0.1"), l.inside.Forward(),
	))
	l.run(t, "ip route add 198.18.0.0/16 dev eth0")
	_, err = sweep(nested, unix.SOCK_DGRAM, onLink[0], 2000)
	must(t, err)
	eventually(t, "the limit is met", func() bool { return slices.Contains(l.limits(t), way.Crowded) })
	if n := neighborsOf(t, l.inside, unix.AF_INET); n > way.MaxNeighbors+5 || n < way.MaxNeighbors/2 {
		t.Errorf("%d neighbours, want some and at most %d", n, way.MaxNeighbors)
	}
}

// TestOnlyNeighborsAreBounded sends to more destinations than a link may have
// neighbours where that makes none of them one.
func TestOnlyNeighborsAreBounded(t *testing.T) {
	for _, c := range []struct{ name, routes string }{
		{"by a gateway", "ip route add 198.18.0.0/16 via 192.0.2.254\nip route add 2001:db8:18::/64 via 2001:db8:1::fe"},
		{"by a gateway of the other family", "ip route add 198.18.0.0/16 via inet6 2001:db8:1::fe dev eth0\nip route add 2001:db8:18::/64 via 2001:db8:1::fe"},
		{"by a link that does not ask", "ip link set eth1 arp off\nip route add 198.18.0.0/16 dev eth1\nip route add 2001:db8:18::/64 dev eth1"},
		{"by a tun", "ip tuntap add tun7 mode tun\nip link set tun7 up\nip route add 198.18.0.0/16 dev tun7\nip route add 2001:db8:18::/64 dev tun7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, nstest.NFT, nstest.Tool("ip"))
			l.onHostAll(t, c.routes)
			l.mirror(t, Options{})
			for _, from := range onLink {
				if n, err := sweep(l.inside, unix.SOCK_DGRAM, from, 3*way.MaxNeighbors); n != 3*way.MaxNeighbors || err != nil {
					t.Errorf("from %s on %d of %d could be sent to: %v", from, n, 3*way.MaxNeighbors, err)
				}
			}
			if ls := l.limits(t); slices.Contains(ls, way.Crowded) {
				t.Errorf("limits %v", ls)
			}
		})
	}
}

// TestLimitOfNeighborsOutlivesReset meets it in two lives of a twin, whose table
// counts from nothing each time.
func TestLimitOfNeighborsOutlivesReset(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"))
	l.mirror(t, Options{})
	var mark uint64
	for range 2 {
		l.run(t, "ip route add 198.18.0.0/16 dev eth0")
		if n, err := sweep(l.inside, unix.SOCK_DGRAM, onLink[0], way.MaxNeighbors+20); n > way.MaxNeighbors || err != nil {
			t.Errorf("%d could be sent to, want %d at most: %v", n, way.MaxNeighbors, err)
		}
		ls, next, err := l.twin.Limits(mark)
		must(t, err)
		if mark = next; !slices.Contains(ls, way.Crowded) {
			t.Errorf("limits %v, want %v", ls, way.Crowded)
		}
		must(t, l.twin.Reset(t.Context()))
	}
}

// TestFramesOnTheLinkAreBounded has a packet socket inside ask for and send to
// addresses of the link, which is no business of the twin's kernel. The host's makes
// a neighbour of each that a flow is begun to.
func TestFramesOnTheLinkAreBounded(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	l.onHost(t, "ip route add 198.18.0.0/16 dev eth0")
	l.mirror(t, Options{})
	fd, own, _ := l.packetSocket(t)
	n, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: unix.ETH_P_ARP<<8&0xff00 | unix.ETH_P_ARP>>8, Ifindex: n.byName("eth0")}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}))
	before := neighborsOf(t, l.host, unix.AF_INET)
	self, to := netip.MustParseAddr("192.0.2.2"), onLink[0]
	for range 3 * way.MaxNeighbors {
		to = to.Next()
		_, err := unix.Write(fd, synFrame(own, l.macByARP(t, fd, own, self, to), self, to, 22))
		must(t, err)
	}
	eventually(t, "the limit is met", func() bool { return slices.Contains(l.limits(t), way.Crowded) })
	l.seenAs(t, "tcp", "203.0.113.80:80")
	if n := neighborsOf(t, l.host, unix.AF_INET) - before; n > way.MaxNeighbors+1 || n < way.MaxNeighbors/2 {
		t.Errorf("the host has %d neighbours more, want some and at most %d", n, way.MaxNeighbors)
	}
}

// macByARP asks who has an address.
func (l *testLab) macByARP(t *testing.T, fd int, own []byte, self, to netip.Addr) []byte {
	t.Helper()
	f := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, own, []byte{0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1},
		own, self.AsSlice(), make([]byte, 6), to.AsSlice())
	_, err := unix.Write(fd, f)
	must(t, err)
	for b := make([]byte, 128); ; {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err == unix.EINTR { // a read with a time limit is not begun again by the kernel
			continue
		}
		must(t, err)
		if n >= 42 && b[21] == 2 && netip.AddrFrom4([4]byte(b[28:32])) == to {
			return slices.Clone(b[22:28])
		}
	}
}
