package nettwin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestNarrowPath has a link of 1280 bytes behind the gateway, which only the
// outside knows of.
func TestNarrowPath(t *testing.T) {
	l := newLab(t)
	bulk(t, l.server)
	echoUDP(t, l.server, ":5353")
	l.narrow(t)
	l.mirror(t, Options{})
	other := l.neighbour(t)
	for _, server := range []string{"203.0.113.80", "[2001:db8:80::80]"} {
		for _, dir := range []byte{down, up} {
			t.Run(fmt.Sprintf("50 MB of a stream, %s %c", server, dir), func(t *testing.T) {
				transfer(t, l.inside, server+":95", dir, 1, 50<<20)
			})
		}
		// In the first the host's kernel learns the MTU, in the other it knows it.
		for _, in := range []*testLab{l, other} {
			t.Run("an application that probes, "+server, func(t *testing.T) { in.probes(t, server+":5353") })
			t.Run("an application that does not, "+server, func(t *testing.T) {
				f := in.opened(t, unix.SOCK_DGRAM, server+":5353", 1)[0]
				defer f.Close()
				must(t, exchange(f, strings.Repeat("x", 1400)))
			})
		}
	}
}

// narrow makes the path to the server one of 1280 bytes.
func (l *testLab) narrow(t *testing.T) {
	t.Helper()
	must(t, errors.Join(l.gw1.MTU("out", 1280), l.server.MTU("one", 1280)))
}

// probes sends datagrams that must not be cut until its kernel says that they are
// too big, and looks what it knows of the path then.
func (l *testLab) probes(t *testing.T, addr string) {
	t.Helper()
	f := l.opened(t, unix.SOCK_DGRAM, addr, 1)[0]
	defer f.Close()
	level, discover, known := unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_MTU
	if addr[0] == '[' {
		level, discover, known = unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU
	}
	must(t, control(f, func(fd int) error { return unix.SetsockoptInt(fd, level, discover, unix.IP_PMTUDISC_DO) }))
	eventually(t, "the path is too narrow", func() bool {
		_, err := f.Write(make([]byte, 1400))
		return errors.Is(err, unix.EMSGSIZE)
	})
	must(t, control(f, func(fd int) error {
		mtu, err := unix.GetsockoptInt(fd, level, known)
		if mtu != 1280 {
			t.Errorf("mtu of the path %d, want 1280", mtu)
		}
		return err
	}))
	again := l.opened(t, unix.SOCK_DGRAM, addr, 1)[0] // the first may have answers waiting
	defer again.Close()
	must(t, exchange(again, strings.Repeat("y", 1200)))
}

// TestIdleFlowsEnd gives flows little time. Those that were answered have more of
// it, and one that is used has all it wants.
func TestIdleFlowsEnd(t *testing.T) {
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	echoUDP(t, l.server, ":5353")
	_, err := l.gw1.Run(t.Context(), "nft", "table inet f { chain through { type filter hook forward priority 0; udp dport 7 drop; }; }")
	must(t, err)
	l.mirror(t, Options{idle: &relay.Idle{Unanswered: 300 * time.Millisecond, Answered: 1500 * time.Millisecond, Echo: 300 * time.Millisecond}})
	for _, f := range l.opened(t, unix.SOCK_DGRAM, "203.0.113.80:7", 20) {
		defer f.Close()
		_, err := f.WriteString("x")
		must(t, err)
	}
	must(t, ping(t, l.inside, "203.0.113.80").answered(1, 1, nil))
	answered := l.opened(t, unix.SOCK_DGRAM, "203.0.113.80:5353", 20)
	for _, f := range answered {
		defer f.Close()
		must(t, exchange(f, "x"))
	}
	open := func(n uint64) func() bool { return func() bool { return l.counts(t).Open == n } }
	eventually(t, "only those that were answered are left", open(20))
	used := time.Now()
	eventually(t, "only the one that is used is left", func() bool {
		must(t, exchange(answered[0], "x"))
		return open(1)()
	})
	if took := time.Since(used); took < 500*time.Millisecond {
		t.Errorf("answered flows ended after %v", took)
	}
	eventually(t, "nothing is left", open(0))
}

// TestDatagramSizes exchanges every size that UDP allows.
func TestDatagramSizes(t *testing.T) {
	l := newLab(t)
	echoUDP(t, l.server, ":5353")
	l.mirror(t, Options{})
	for _, addr := range []string{"203.0.113.80:5353", "[2001:db8:80::80]:5353"} {
		for _, size := range []int{0, 1, 1472, 1473, 4000, 65000} {
			payload := strings.Repeat("z", size)
			got, err := l.datagram(addr, payload)
			if _, back, _ := strings.Cut(got, "\n"); err != nil || back != payload {
				t.Errorf("%s, %d bytes: got %d, %v", addr, size, len(back), err)
			}
		}
	}
}

// TestTracedPath sends datagrams that live for one router, as traceroute does. The
// router is named.
func TestTracedPath(t *testing.T) {
	l := newLab(t)
	l.mirror(t, Options{})
	for addr, router := range map[string]string{"203.0.113.80:33434": "192.0.2.1", "[2001:db8:80::80]:33434": "2001:db8:1::1"} {
		f := l.opened(t, unix.SOCK_DGRAM, addr, 1)[0]
		defer f.Close()
		p := &pinger{File: f, six: addr[0] == '['}
		must(t, control(f, p.options(1, false)))
		_, err := f.WriteString("x")
		must(t, err)
		if e := p.wireError(t); e.from.String() != router || e.errno != unix.EHOSTUNREACH {
			t.Errorf("%s: told %+v, want %s by %s", addr, e, unix.EHOSTUNREACH, router)
		}
		must(t, control(f, p.options(64, false)))
		eventually(t, "the server says that nobody is there", func() bool {
			_, _ = f.WriteString("x") // reports what the last one met
			return p.wireError(t).errno == unix.ECONNREFUSED
		})
	}
}
