package nettwin

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// pinger is a raw ICMP socket: it sees what is on the wire.
type pinger struct {
	*os.File
	six bool
}

// ping opens one in a node, connected to an address.
func ping(t *testing.T, n *netlab.Node, addr string) *pinger {
	t.Helper()
	to := netip.MustParseAddr(addr)
	p := &pinger{six: to.Is6()}
	family, proto := unix.AF_INET, unix.IPPROTO_ICMP
	var sa unix.Sockaddr
	if p.six {
		family, proto, sa = unix.AF_INET6, unix.IPPROTO_ICMPV6, &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		sa = &unix.SockaddrInet4{Addr: to.As4()}
	}
	must(t, n.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
		if err != nil {
			return err
		}
		p.File = os.NewFile(uintptr(fd), "ping "+addr)
		return unix.Connect(fd, sa)
	}))
	t.Cleanup(func() { p.Close() })
	return p
}

// request is an echo request with a checksum; IPv6's is made by the kernel.
func (p *pinger) request(id, seq uint16, payload []byte) []byte {
	m := append([]byte{8, 0, 0, 0, byte(id >> 8), byte(id), byte(seq >> 8), byte(seq)}, payload...)
	if p.six {
		m[0] = 128
		return m
	}
	sum := ^checksum.Checksum(m, 0)
	m[2], m[3] = byte(sum>>8), byte(sum)
	return m
}

// reply returns the next echo reply or error, from its ICMP header on, and the
// time to live of an IPv4 packet.
func (p *pinger) reply(limit time.Duration) ([]byte, byte, error) {
	if err := p.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, 0, err
	}
	b := make([]byte, 64<<10)
	for {
		n, err := p.Read(b)
		if err != nil {
			return nil, 0, err
		}
		m, ttl := b[:n], byte(0)
		if !p.six {
			m, ttl = m[20:], m[8]
		}
		if wanted := map[byte]bool{0: !p.six, 129: p.six}; wanted[m[0]] {
			return bytes.Clone(m), ttl, nil
		}
	}
}

// answered sends a request and compares the reply.
func (p *pinger) answered(id, seq uint16, payload []byte) error {
	if _, err := p.Write(p.request(id, seq, payload)); err != nil {
		return err
	}
	m, _, err := p.reply(3 * time.Second)
	if err != nil {
		return err
	}
	if got, want := m[4:], p.request(id, seq, payload)[4:]; !bytes.Equal(got, want) {
		return fmt.Errorf("id, sequence or payload differ: got %d bytes % .12x, want %d bytes % .12x", len(got), got, len(want), want)
	}
	return nil
}

// echoModes are the two kinds of socket that a host may allow the relay.
var echoModes = []struct{ name, groups string }{{"raw sockets", "1 0"}, {"ping sockets", "0 0"}}

// TestEcho sends echo requests of every size that the stack allows, whole and in
// fragments, with and without unprivileged ping sockets on the host.
func TestEcho(t *testing.T) {
	for _, mode := range echoModes {
		t.Run(mode.name, func(t *testing.T) {
			l := newLab(t)
			must(t, l.host.Sysctl("ipv4/ping_group_range", mode.groups))
			l.mirror(t, Options{})
			for _, addr := range []string{"203.0.113.80", "2001:db8:80::80", "198.51.100.1", "2001:db8:2::1"} {
				p := ping(t, l.inside, addr)
				for i, size := range []int{0, 1, 56, 1400, 1480, 4000, 65000} {
					payload := bytes.Repeat([]byte{byte(i), 7, 3, 1}, size/4+1)[:size]
					if err := p.answered(0x5b01, uint16(1000+i), payload); err != nil {
						t.Errorf("%s, %d bytes: %v", addr, size, err)
					}
				}
			}
			if c := l.counts(t); c.Unmirrored+c.Fenced+c.Refused != 0 {
				t.Errorf("ordinary requests were refused: %+v", c)
			}
		})
	}
}

// TestEchoIdentifiers runs several pings to one place at once. The answers of
// each are its own, and the far end's time to live is what the twin sees.
func TestEchoIdentifiers(t *testing.T) {
	l := newLab(t)
	l.mirror(t, Options{})
	pingers := make([]*pinger, 8)
	for i := range pingers {
		pingers[i] = ping(t, l.inside, "203.0.113.80")
	}
	for seq := range uint16(5) {
		for i, p := range pingers {
			_, err := p.Write(p.request(uint16(i), seq, []byte{byte(i), byte(seq)}))
			must(t, err)
		}
	}
	// Every raw socket sees all replies, each of them once.
	seen := map[string]int{}
	for range 5 * len(pingers) {
		m, ttl, err := pingers[0].reply(3 * time.Second)
		must(t, err)
		if m[5] != m[8] || m[7] != m[9] {
			t.Errorf("reply % x is not to the request that it names", m)
		}
		if ttl != 63 { // one router is between
			t.Errorf("time to live %d, want 63", ttl)
		}
		seen[string(m)]++
	}
	if len(seen) != 5*len(pingers) {
		t.Errorf("%d different replies, want %d", len(seen), 5*len(pingers))
	}
}

// TestEchoIsFenced asks the host itself, and nobody.
func TestEchoIsFenced(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	fd, own, gw := l.packetSocket(t)
	for _, dst := range []string{"192.0.2.2", "198.51.100.2", "127.0.0.1", "0.0.0.0", "192.0.2.255"} {
		f := synFrame(own, gw, netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr(dst), 0)[:34]
		f[14+9] = unix.IPPROTO_ICMP
		f = append(f, (&pinger{}).request(1, 1, make([]byte, 12))...)
		_, err := unix.Write(fd, f)
		must(t, err)
	}
	eventually(t, "all five are refused", func() bool { return l.counts(t).Fenced == 5 })
}

// TestOtherProtocols sends what the twin does not carry. It is said so, once per
// protocol and destination, and never for what the kernel says by itself.
func TestOtherProtocols(t *testing.T) {
	l := newLab(t)
	l.mirror(t, Options{})
	_, from, err := l.twin.Limits(0)
	must(t, err)
	send := func(family, proto int, sa unix.Sockaddr, b []byte) {
		t.Helper()
		must(t, l.inside.Do(func() error {
			fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, b, 0, sa)
		}))
	}
	server := &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 80}}
	for range 3 {
		send(unix.AF_INET, unix.IPPROTO_SCTP, server, make([]byte, 32))
		send(unix.AF_INET, unix.IPPROTO_GRE, server, make([]byte, 32))
		send(unix.AF_INET, unix.IPPROTO_ICMP, server, append([]byte{13, 0}, make([]byte, 18)...))
		send(unix.AF_INET, unix.IPPROTO_ICMP, server, append([]byte{3, 1}, make([]byte, 30)...))
		send(unix.AF_INET6, unix.IPPROTO_SCTP, &unix.SockaddrInet6{Addr: netip.MustParseAddr("2001:db8:80::80").As16()}, make([]byte, 32))
	}
	want := []string{"SCTP to 203.0.113.80", "GRE to 203.0.113.80", "ICMP type 13 to 203.0.113.80", "SCTP to 2001:db8:80::80"}
	eventually(t, "every one is a limit, once", func() bool {
		found, _, err := l.twin.Limits(from)
		must(t, err)
		return len(found) >= len(want)
	})
	found, _, err := l.twin.Limits(from)
	must(t, err)
	var got []string
	for _, f := range found {
		if f.Kind != way.Protocol {
			t.Errorf("kind %s of %v", f.Kind, f)
		}
		got = append(got, f.Subject)
	}
	if len(got) != len(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			t.Errorf("got %q, want %q among them", got, w)
		}
	}
}
