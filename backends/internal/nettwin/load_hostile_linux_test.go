package nettwin

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// hostileBound is the most memory that a relay may ever have resident, whatever
// is thrown at it.
const hostileBound = 256 << 20

// neighbour is another environment of the same host, which is to notice nothing.
func (l *testLab) neighbour(t *testing.T) *testLab {
	t.Helper()
	other := *l
	other.mirror(t, Options{})
	return &other
}

// latency is the median of some connects from a twin. None may take long: what
// bounds each is the deadline of seenAs, for a median says nothing on a busy day.
func (l *testLab) latency(t *testing.T) time.Duration {
	t.Helper()
	took := make([]time.Duration, 21)
	for i := range took {
		begun := time.Now()
		l.seenAs(t, "tcp", "203.0.113.80:80")
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// survived looks at a relay after what was thrown at it, and at the environment
// beside it.
func (l *testLab) survived(t *testing.T, other *testLab, host string) {
	t.Helper()
	s := l.twin.Status()
	if s.Relay == 0 {
		t.Fatalf("the relay died: %s", s.Err)
	}
	must(t, l.connect("tcp", "203.0.113.80:80", 30*time.Second)) // behind what is still being dialled
	for range 20 {
		l.seenAs(t, "tcp", "203.0.113.80:80")
	}
	if n := peak(t, s.Relay); n > hostileBound {
		t.Errorf("peak memory of the relay %d MB, want at most %d", n>>20, hostileBound>>20)
	}
	if n := peak(t, other.twin.Status().Relay); n > relayBound {
		t.Errorf("peak memory of the relay beside %d MB, want at most %d", n/1e6, relayBound/1_000_000)
	}
	if got := dump(t, int(l.host.NS().Fd())); got != host {
		t.Errorf("the host is\n%s\nbefore it was\n%s", got, host)
	}
	t.Logf("peak %d MB, %+v; beside it %v a connection", peak(t, s.Relay)>>20, l.counts(t), other.latency(t))
}

// TestHostileFrames throws a minute of malformed and random frames at the relay,
// half of them with a virtio header of the sender's making. It must live, serve,
// and not grow; the environment beside it works all the time.
func TestHostileFrames(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"), nstest.NFT)
	echo(t, l.server, "tcp", ":80")
	other := l.neighbour(t)
	l.mirror(t, Options{})
	host := dump(t, int(l.host.NS().Fd()))
	plain, own, gw := l.packetSocket(t)
	n, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	offloaded := l.openPacketSocket(t, n.byName("eth0"))
	must(t, unix.SetsockoptInt(offloaded, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := &forger{rand.New(rand.NewPCG(seed, 7)), own, gw, netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8:1::2")}
	sent, refused := 0, 0
	var worst time.Duration
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		for range 20_000 {
			fd, b := plain, f.frame()
			if f.IntN(2) == 0 {
				fd, b = offloaded, append(f.vnet(), b...)
			}
			switch _, err := unix.Write(fd, b); {
			case err == nil:
				sent++
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EMSGSIZE):
				refused++
			default:
				t.Fatal(err)
			}
		}
		worst = max(worst, other.latency(t))
	}
	t.Logf("%d frames, %d more refused by the kernel; worst median beside them %v", sent, refused, worst)
	if sent < 100_000 {
		t.Errorf("%d frames are no minute's worth", sent)
	}
	l.survived(t, other, host)
}

// TestScan sends a SYN to every address of a /16 that swallows them, and asks for
// every address of another /16 on the link.
func TestScan(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"), nstest.NFT)
	echo(t, l.server, "tcp", ":80")
	_, err := l.gw1.Run(t.Context(), "ip", "route", "add", "blackhole", "10.9.0.0/16")
	must(t, err)
	other := l.neighbour(t)
	l.mirror(t, Options{})
	host := dump(t, int(l.host.NS().Fd()))
	fd, own, gw := l.packetSocket(t)
	f := &forger{own: own, gateway: gw, v4: netip.MustParseAddr("192.0.2.2")}
	for i := range 1 << 16 {
		syn := synFrame(own, gw, f.v4, netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 22)
		ask := append(f.ethernet([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, unix.ETH_P_ARP), 0, 1, 8, 0, 6, 4, 0, 1)
		ask = append(append(append(append(ask, own...), f.v4.AsSlice()...), make([]byte, 6)...), 10, 8, byte(i>>8), byte(i))
		for _, b := range [][]byte{syn, ask} {
			if _, err := unix.Write(fd, b); err != nil && !errors.Is(err, unix.ENOBUFS) {
				t.Fatal(err)
			}
		}
		if i&0x3fff == 0 {
			t.Logf("beside it %v a connection", other.latency(t))
		}
	}
	l.survived(t, other, host)
	if c := l.counts(t); c.NextHops > 4096 || c.NextHops < 1000 {
		t.Errorf("the relay keeps %d next hops, want a bounded number and some", c.NextHops)
	}
}
