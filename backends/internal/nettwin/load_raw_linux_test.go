package nettwin

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestFramesThatNoKernelPasses stands where the TAP is: what a kernel would refuse
// to send, or cut to size, comes to the relay as it is. It is the real process,
// confined, in an empty network.
func TestFramesThatNoKernelPasses(t *testing.T) {
	nstest.New(t, nstest.Root, nstest.NetNS)
	p, err := relay.Spawn("/proc/self/exe", testWriter{t}, nil)
	must(t, err)
	defer p.Close()
	own := []byte{2, 0, 0, 0, 0, 1}
	wire, far := newCable(t, own)
	_, err = p.Do(relay.Request{Interface: &relay.Interface{Name: "eth0", Index: 1, MAC: own, MTU: 1500}}, far)
	must(t, err)
	_, err = p.Do(relay.Request{Start: &relay.Start{}}, nil)
	must(t, err)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := &forger{
		rand.New(rand.NewPCG(seed, 3)), own, wire.gateway(t),
		netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8:1::2"),
	}
	sent := 0
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		for range 256 {
			b := append(f.vnet(), f.frame()...)
			if f.IntN(20) == 0 { // larger than any MTU, and than the first of the buffers
				b = append(b, f.bytes(f.IntN(60_000))...)
			}
			if f.IntN(20) == 0 {
				b = b[:1+f.IntN(len(b)-1)]
			}
			if _, err := wire.Write(b); err != nil {
				t.Fatalf("after %d frames: %v", sent, errors.Join(err, p.Err()))
			}
			sent++
		}
	}
	for len(wire.answers) > 0 {
		<-wire.answers
	}
	wire.gateway(t)
	c, err := p.Do(relay.Request{Count: true}, nil)
	must(t, errors.Join(err, p.Err()))
	if n := peak(t, p.PID()); n > hostileBound {
		t.Errorf("peak memory of the relay %d MB, want at most %d", n>>20, hostileBound>>20)
	}
	t.Logf("%d frames, peak %d MB, %+v", sent, peak(t, p.PID())>>20, c)
}

// cable stands in the place of a TAP: a packet a frame, both ways.
type cable struct {
	*os.File
	own     []byte
	answers chan net.HardwareAddr // to questions for the gateway
}

func newCable(t *testing.T, own []byte) (c *cable, far *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	c = &cable{os.NewFile(uintptr(fds[0]), "wire"), own, make(chan net.HardwareAddr, 1)}
	far = os.NewFile(uintptr(fds[1]), "tap")
	t.Cleanup(func() { c.Close(); far.Close() })
	go c.listen()
	return c, far
}

// listen takes what the relay says, so that it never waits for the far end.
func (c *cable) listen() {
	b := make([]byte, 128<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if n == 52 && b[22] == 8 && b[23] == 6 && b[31] == 2 && [4]byte(b[38:42]) == [4]byte{192, 0, 2, 1} {
			select {
			case c.answers <- slices.Clone(net.HardwareAddr(b[32:38])):
			default:
			}
		}
	}
}

// gateway asks for the MAC of the gateway.
func (c *cable) gateway(t *testing.T) net.HardwareAddr {
	t.Helper()
	ask := append(make([]byte, 10), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	ask = append(append(ask, c.own...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	ask = append(append(append(append(ask, c.own...), 192, 0, 2, 2), make([]byte, 6)...), 192, 0, 2, 1)
	_, err := c.Write(ask)
	must(t, err)
	select {
	case mac := <-c.answers:
		return mac
	case <-time.After(10 * time.Second):
		t.Fatal("the gateway does not answer")
		return nil
	}
}
