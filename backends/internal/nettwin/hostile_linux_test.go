package nettwin

import (
	"encoding/binary"
	"net/netip"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// packetSocket sends frames of the test's own making into eth0 of the twin, and
// returns the link's own MAC and that of the gateway.
func (l *testLab) packetSocket(t *testing.T) (fd int, own, gateway []byte) {
	t.Helper()
	l.seenAs(t, "tcp", "203.0.113.80:80") // resolves the gateway
	n, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	index := n.byName("eth0")
	fd = l.openPacketSocket(t, index)
	out, err := l.inside.Run(t.Context(), "ip", "neigh", "show", "192.0.2.1")
	must(t, err)
	m := regexp.MustCompile(`lladdr ((?:[0-9a-f]{2}:?){6})`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("gateway is not resolved: %s", out)
	}
	for i := range 6 {
		b, err := strconv.ParseUint(m[1][3*i:3*i+2], 16, 8)
		must(t, err)
		gateway = append(gateway, byte(b))
	}
	return fd, n.mac(index), gateway
}

func (l *testLab) openPacketSocket(t *testing.T, index int) (fd int) {
	t.Helper()
	must(t, l.inside.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0, Ifindex: index})
	}))
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// synFrame is a TCP SYN with correct checksums.
func synFrame(own, gateway []byte, src, dst netip.Addr, port uint16) []byte {
	from, to := tcpip.AddrFromSlice(src.AsSlice()), tcpip.AddrFromSlice(dst.AsSlice())
	var f []byte
	size := header.IPv4MinimumSize
	if dst.Is6() {
		size = header.IPv6MinimumSize
	}
	f = make([]byte, 14+size+header.TCPMinimumSize)
	copy(f, gateway)
	copy(f[6:], own)
	if dst.Is6() {
		binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IPV6)
		header.IPv6(f[14:]).Encode(&header.IPv6Fields{PayloadLength: header.TCPMinimumSize, TransportProtocol: header.TCPProtocolNumber, HopLimit: 64, SrcAddr: from, DstAddr: to})
	} else {
		binary.BigEndian.PutUint16(f[12:], unix.ETH_P_IP)
		ip := header.IPv4(f[14:])
		ip.Encode(&header.IPv4Fields{TotalLength: uint16(len(f) - 14), TTL: 64, Protocol: uint8(header.TCPProtocolNumber), SrcAddr: from, DstAddr: to})
		ip.SetChecksum(^ip.CalculateChecksum())
	}
	th := header.TCP(f[14+size:])
	th.Encode(&header.TCPFields{SrcPort: 4242, DstPort: port, SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 65535})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, from, to, header.TCPMinimumSize)
	th.SetChecksum(^th.CalculateChecksum(checksum.Combine(sum, 0)))
	return f
}

// TestForgedDestinations sends what no kernel would: addresses that a socket
// call on the host takes for the host itself.
func TestForgedDestinations(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	ln, err := l.host.Listen("tcp", ":22")
	must(t, err)
	defer ln.Close()
	reached := make(chan string, 16)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			reached <- c.LocalAddr().String()
			c.Close()
		}
	}()
	l.mirror(t, Options{})
	fd, own, gw := l.packetSocket(t)
	v4, v6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8:1::2")
	for _, dst := range []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.1.2.3", "192.0.2.2", "198.51.100.2", "192.0.2.255", "255.255.255.255", "224.0.0.1",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:192.0.2.2", "::127.0.0.1", "2001:db8:1::2", "2001:db8:2::2", "ff02::1", "fe80::1",
	} {
		a := netip.MustParseAddr(dst)
		src := v4
		if a.Is6() {
			src = v6
		}
		_, err := unix.Write(fd, synFrame(own, gw, src, a, 22))
		must(t, err)
	}
	// Frames are handled in order: when this one is answered, so are those before.
	l.seenAs(t, "tcp", "203.0.113.80:80")
	if n := l.counts(t).Fenced; n < 3 {
		t.Errorf("%d fenced, want the host's own addresses at least", n)
	}
	select {
	case at := <-reached:
		t.Errorf("a forged frame reached the host's service at %s", at)
	case <-time.After(200 * time.Millisecond):
	}
}
