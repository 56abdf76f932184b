package sockdiag

import (
	"maps"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func TestTakes(t *testing.T) {
	for _, c := range []struct {
		name, listens string
		only6         bool
		to            string
		want          bool
	}{
		{"the same address", "127.0.0.1:53", false, "127.0.0.1:53", true},
		{"another address", "127.0.0.1:53", false, "127.0.0.53:53", false},
		{"another port", "127.0.0.1:53", false, "127.0.0.1:54", false},
		{"every IPv4 address", "0.0.0.0:53", false, "127.0.0.53:53", true},
		{"IPv4 does not take IPv6", "0.0.0.0:53", false, "[::1]:53", false},
		{"a dual-stack socket takes IPv4", "[::]:53", false, "127.0.0.53:53", true},
		{"an IPv6-only socket does not", "[::]:53", true, "127.0.0.53:53", false},
		{"an IPv6-only socket takes IPv6", "[::]:53", true, "[::1]:53", true},
		{"IPv4 in an IPv6 socket", "[::ffff:127.0.0.1]:53", false, "127.0.0.1:53", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Socket{Addr: netip.MustParseAddrPort(c.listens), Only6: c.only6}
			if got := s.Takes(netip.MustParseAddrPort(c.to)); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestListening(t *testing.T) {
	ns := nstest.New(t)
	tcp4, err := net.Listen("tcp", "127.0.0.1:1001")
	must(t, err)
	defer tcp4.Close()
	tcp6, err := net.Listen("tcp6", "[::1]:1002")
	must(t, err)
	defer tcp6.Close()
	any6, err := net.Listen("tcp", ":1003")
	must(t, err)
	defer any6.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:1004")
	must(t, err)
	defer udp.Close()
	client, err := net.Dial("tcp", "127.0.0.1:1001") // has a port too, and listens on none
	must(t, err)
	defer client.Close()

	c, err := Dial(int(ns.Net().Fd()))
	must(t, err)
	defer c.Close()
	got, err := c.Listening()
	must(t, err)
	want := map[Socket]bool{
		{unix.IPPROTO_TCP, netip.MustParseAddrPort("127.0.0.1:1001"), false}: true,
		{unix.IPPROTO_TCP, netip.MustParseAddrPort("[::1]:1002"), true}:      true,
		{unix.IPPROTO_TCP, netip.MustParseAddrPort("[::]:1003"), false}:      true,
		{unix.IPPROTO_UDP, netip.MustParseAddrPort("127.0.0.1:1004"), false}: true,
	}
	for _, s := range got {
		if !want[s] {
			t.Errorf("listed but not made: %+v", s)
		}
		delete(want, s)
	}
	for s := range want {
		t.Errorf("made but not listed: %+v", s)
	}
}

// TestHas looks for both ends of connections, and for what is none.
func TestHas(t *testing.T) {
	ns := nstest.New(t)
	c, err := Dial(int(ns.Net().Fd()))
	must(t, err)
	defer c.Close()
	for _, addr := range []string{"127.0.0.1:1001", "[::1]:1001"} {
		ln, err := net.Listen("tcp", addr)
		must(t, err)
		defer ln.Close()
		out, err := net.Dial("tcp", addr)
		must(t, err)
		defer out.Close()
		near, far := out.LocalAddr().(*net.TCPAddr).AddrPort(), netip.MustParseAddrPort(addr)
		nobody := netip.AddrPortFrom(near.Addr(), near.Port()^1)
		for _, q := range []struct {
			name     string
			at, peer netip.AddrPort
			want     bool
		}{
			{"the near end", near, far, true},
			{"the far end", far, near, true},
			{"a listener and a peer it does not have", far, nobody, false},
			{"nothing", nobody, far, false},
		} {
			if got, err := c.Has(unix.IPPROTO_TCP, q.at, q.peer); got != q.want || err != nil {
				t.Errorf("%s: %s: got %v, %v; want %v", addr, q.name, got, err, q.want)
			}
		}
	}
}

// TestMarks has sockets with marks of a block, with another and with none.
func TestMarks(t *testing.T) {
	ns := nstest.New(t)
	c, err := Dial(int(ns.Net().Fd()))
	must(t, err)
	defer c.Close()
	for mark, s := range map[int][2]int{
		0x1001: {unix.AF_INET, unix.SOCK_STREAM}, 0x1002: {unix.AF_INET6, unix.SOCK_DGRAM}, 0x2001: {unix.AF_INET, unix.SOCK_DGRAM}, 0: {unix.AF_INET, unix.SOCK_STREAM},
	} {
		fd, err := unix.Socket(s[0], s[1]|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		defer unix.Close(fd)
		must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark))
		at := unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		if s[0] == unix.AF_INET6 {
			at = &unix.SockaddrInet6{Addr: [16]byte{15: 1}}
		}
		must(t, unix.Bind(fd, at))
		if s[1] == unix.SOCK_STREAM { // one that is only bound is not listed
			must(t, unix.Listen(fd, 1))
		}
	}
	got, err := c.Marks(0x1000, 0xf000)
	must(t, err)
	if want := map[uint32]bool{0x1001: true, 0x1002: true}; !maps.Equal(got, want) {
		t.Errorf("marks %v, want %v", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
