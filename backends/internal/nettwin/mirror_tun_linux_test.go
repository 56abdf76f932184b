package nettwin

import (
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// tunnel joins two nodes with a pair of tuns, as a VPN client does: packets that
// one node routes to its tun come out of the other's.
func tunnel(t *testing.T, a, b *netlab.Node, name string) {
	t.Helper()
	files := [2]*os.File{}
	for i, n := range []*netlab.Node{a, b} {
		must(t, n.Do(func() error {
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				return err
			}
			req, err := unix.NewIfreq(name)
			if err != nil {
				return err
			}
			req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
			files[i] = os.NewFile(uintptr(fd), name) // not before: the poller would wait for nothing
			return err
		}))
		must(t, n.Up(name))
		f := files[i]
		t.Cleanup(func() { f.Close() })
	}
	go io.Copy(files[0], files[1])
	go io.Copy(files[1], files[0])
}

// TestTunIsATun routes everything but the lab's own networks through a tunnel of
// a program on the host, by a device route and by a gateway that is nobody's.
func TestTunIsATun(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	far, err := l.Node("far")
	must(t, err)
	tunnel(t, l.host, far, "tun0")
	for _, line := range []string{
		"ip link set tun0 mtu 1380", "ip addr add 10.8.0.2 peer 10.8.0.1 dev tun0", "ip -6 addr add fd08::2/64 dev tun0 nodad",
		"ip route add 100.64.0.0/10 dev tun0", "ip route add 100.100.0.0/16 via 10.8.0.1", "ip -6 route add fd09::/16 dev tun0",
	} {
		l.onHost(t, line)
	}
	for _, line := range []string{
		"ip addr add 10.8.0.1 peer 10.8.0.2 dev tun0", "ip -6 addr add fd08::1/64 dev tun0 nodad",
		"ip route add local 100.64.0.0/10 dev lo", "ip -6 route add local fd09::/16 dev lo",
	} {
		_, err := far.Run(t.Context(), fields(line)...)
		must(t, err)
	}
	must(t, far.Sysctl("ipv6/ip_nonlocal_bind", "1")) // a local route is no address
	echo(t, far, "tcp", ":80")
	l.mirror(t, Options{})
	for _, c := range []struct{ addr, seen string }{
		{"10.8.0.1", "10.8.0.2"}, {"100.65.1.2", "10.8.0.2"}, {"100.100.7.7", "10.8.0.2"}, {"[fd08::1]", "fd08::2"}, {"[fd09::7]", "fd08::2"},
	} {
		if got := l.seenAs(t, "tcp", c.addr+":80"); got != c.seen {
			t.Errorf("tcp %s was seen as %s, want %s", c.addr, got, c.seen)
		}
		echoUDP(t, far, c.addr+":5353") // bound to it: an answer must come from there
		if got, err := l.datagram(c.addr+":5353", "x"); err != nil || got != c.seen+"\nx" {
			t.Errorf("udp %s: got %q, %v; want %s", c.addr, got, err, c.seen)
		}
	}
	// A fake-IP proxy answers each name with an address of its own. None of them
	// is a next hop.
	addr := netip.MustParseAddr("100.64.8.0")
	for range 1100 {
		addr = addr.Next()
		if got := l.seenAs(t, "tcp", netip.AddrPortFrom(addr, 80).String()); got != "10.8.0.2" {
			t.Fatalf("%s was seen as %s", addr, got)
		}
	}
	c, err := l.twin.Counts()
	must(t, err)
	if c.NextHops > 8 {
		t.Errorf("%d next hops on a link that has none", c.NextHops)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("traffic is no difference: %q", got)
	}
}

// TestBulkThroughATun uses segmentation offload without an Ethernet header.
func TestBulkThroughATun(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	far, err := l.Node("far")
	must(t, err)
	tunnel(t, l.host, far, "tun0")
	l.onHost(t, "ip addr add 10.8.0.2 peer 10.8.0.1 dev tun0")
	_, err = far.Run(t.Context(), "ip", "addr", "add", "10.8.0.1", "peer", "10.8.0.2", "dev", "tun0")
	must(t, err)
	echo(t, far, "tcp", ":80")
	l.mirror(t, Options{})
	c, err := l.inside.Dial(within(t, 5*time.Second), "tcp", "10.8.0.1:80")
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	const size = 4 << 20
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i * 31 >> 3)
	}
	go func() {
		c.Write(sent)
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	must(t, err)
	if head := len("10.8.0.2\n"); len(got) != head+size || string(got[head:]) != string(sent) {
		t.Errorf("%d bytes came back of %d, or others", len(got)-head, size)
	}
}

// TestLinkThatDoesNotAsk sends over an Ethernet with ARP switched off: every
// frame carries the link's own address.
func TestLinkThatDoesNotAsk(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	echo(t, l.gw2, "tcp", ":80")
	gw := l.macOf(t, l.gw2, "in")
	l.onHost(t, "ip link set eth1 arp off")
	for _, a := range []string{"198.51.100.1", "2001:db8:2::1"} {
		l.onHost(t, "ip neigh replace "+a+" lladdr "+gw+" dev eth1 nud permanent")
	}
	_, err := l.gw2.Run(t.Context(), "ip", "neigh", "replace", "198.51.100.2", "lladdr", l.macOf(t, l.host, "eth1"), "dev", "in", "nud", "permanent")
	must(t, err)
	_, err = l.gw2.Run(t.Context(), "ip", "neigh", "replace", "2001:db8:2::2", "lladdr", l.macOf(t, l.host, "eth1"), "dev", "in", "nud", "permanent")
	must(t, err)
	l.mirror(t, Options{})
	for addr, seen := range map[string]string{"198.51.100.1": "198.51.100.2", "[2001:db8:2::1]": "2001:db8:2::2"} {
		if got := l.seenAs(t, "tcp", addr+":80"); got != seen {
			t.Errorf("%s was seen as %s, want %s", addr, got, seen)
		}
	}
}
