package nettwin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
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
	must(t, l.inside.Do(func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0, Ifindex: index})
	}))
	t.Cleanup(func() { unix.Close(fd) })
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

// TestHostileFrames throws random and mutated frames at the relay for a while.
// It must live, serve, and not grow.
func TestHostileFrames(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	fd, own, gw := l.packetSocket(t)
	v4, v6 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8:1::2")
	seed := [2]uint64{uint64(time.Now().UnixNano()), 7}
	t.Logf("seed %v", seed)
	rnd := rand.New(rand.NewPCG(seed[0], seed[1]))
	sent := 0
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		for range 64 {
			f := hostileFrame(rnd, own, gw, v4, v6)
			if _, err := unix.Write(fd, f); err == nil {
				sent++
			} else if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EMSGSIZE) {
				t.Fatal(err)
			}
		}
	}
	s := l.twin.Status()
	if s.Relay == 0 {
		t.Fatalf("the relay died after %d frames: %s", sent, s.Err)
	}
	must(t, l.connect("tcp", "203.0.113.80:80", 30*time.Second)) // behind what is still being dialled
	for range 20 {
		l.seenAs(t, "tcp", "203.0.113.80:80")
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Relay))
	must(t, err)
	var peak int
	fmt.Sscanf(string(regexp.MustCompile(`VmHWM:.*`).Find(b)), "VmHWM: %d", &peak)
	if peak == 0 || peak > 300<<10 {
		t.Errorf("peak memory %d KiB after %d frames, want at most 300 MiB", peak, sent)
	}
	t.Logf("%d frames, peak %d KiB, %+v", sent, peak, l.counts(t))
}

// hostileFrame is a SYN, datagram, ARP question or noise with some bytes turned.
func hostileFrame(rnd *rand.Rand, own, gw []byte, v4, v6 netip.Addr) []byte {
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	var f []byte
	switch rnd.IntN(5) {
	case 0:
		f = synFrame(own, gw, v4, netip.AddrFrom4([4]byte(random(4))), uint16(rnd.Uint32()))
	case 1:
		f = synFrame(own, gw, v6, netip.AddrFrom16([16]byte(random(16))), uint16(rnd.Uint32()))
	case 2: // a question for any address
		f = append(append(append([]byte{}, gw...), own...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		f = append(append(append(f, own...), v4.AsSlice()...), random(10)...)
	case 3: // UDP, or any other protocol, with headers that may contradict each other
		f = synFrame(own, gw, v4, netip.MustParseAddr("203.0.113.80"), 53)
		f[14+9] = []byte{17, 1, 6, 58, 132, byte(rnd.Uint32())}[rnd.IntN(6)]
		f = append(f, random(1+rnd.IntN(1400))...)
	default:
		f = append(append(append([]byte{}, gw...), own...), []byte{8, 0x86, 8}[rnd.IntN(3)], []byte{0, 0xdd, 6}[rnd.IntN(3)])
		f = append(f, random(1+rnd.IntN(1400))...)
	}
	for range rnd.IntN(4) {
		f[14+rnd.IntN(len(f)-14)] = byte(rnd.Uint32())
	}
	return f[:14+rnd.IntN(len(f)-13)]
}
