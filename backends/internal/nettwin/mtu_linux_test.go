package nettwin

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestMTURaisedInside has a host with a small MTU, on its link or on its route, and
// a candidate with a larger one. What works with the host's says nothing of it.
func TestMTURaisedInside(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "80")
	for _, c := range []struct {
		name         string
		host, inside []string
	}{
		{"of the link", []string{"ip link set eth0 mtu 1400"}, []string{"ip link set eth0 mtu 1500"}},
		{"of the route", []string{
			"ip link set eth0 mtu 1500", "ip route replace default via 192.0.2.1 mtu 1400", "ip -6 route replace default via 2001:db8:1::1 metric 1024 mtu 1400",
		}, []string{"ip route replace default via 192.0.2.1", "ip -6 route replace default via 2001:db8:1::1 metric 1024"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, line := range c.host {
				l.onHost(t, line)
			}
			l.mirror(t, Options{Ways: l.keeper})
			for six, server := range servers {
				for _, network := range []string{"tcp", "udp"} {
					if got, err := path(t, l.inside, network, server+":80"); got != byGW1[six] {
						t.Errorf("%s to %s in the unchanged twin: seen as %q, %v", network, server, got, err)
					}
				}
			}
			if ls := l.limits(t); len(ls) != 0 {
				t.Errorf("limits of the unchanged twin: %v", ls)
			}
			for _, line := range c.inside {
				l.run(t, line)
			}
			for _, server := range servers {
				if err := l.connect("tcp", server+":80", 3*time.Second); !errors.Is(err, unix.EHOSTUNREACH) {
					t.Errorf("to %s: got %v, want no route to host", server, err)
				}
			}
			for _, lim := range l.limits(t) {
				if lim.Kind != way.Link || !strings.Contains(lim.Reason, "1500") || !strings.Contains(lim.Reason, "1400") {
					t.Errorf("limit %v, want one of kind %s that names both", lim, way.Link)
				}
			}
			if len(l.limits(t)) == 0 {
				t.Error("no limit was met")
			}
		})
	}
}

// TestDatagramWiderThanTheHosts sends more in one packet than the host's link takes.
func TestDatagramWiderThanTheHosts(t *testing.T) {
	l := newWaysLab(t)
	echoUDP(t, l.server, ":81")
	l.onHost(t, "ip link set eth0 mtu 1400")
	l.mirror(t, Options{Ways: l.keeper})
	l.run(t, "ip link set eth0 mtu 1500")
	if got, err := l.datagram(servers[0]+":81", strings.Repeat("x", 1300)); err != nil {
		t.Errorf("a small one: %d bytes, %v", len(got), err)
	}
	if got, err := l.datagramWithin(servers[0]+":81", strings.Repeat("x", 1450), time.Second); err == nil {
		t.Errorf("a large one: got %d bytes", len(got))
	}
	l.wantOnly(t, way.Link, "eth0")
}

// TestMTULoweredInside looks at the segments that a server is asked to send, and
// sends itself, when the candidate has smaller ones than the host.
func TestMTULoweredInside(t *testing.T) {
	l := newWaysLab(t)
	sizes := make(chan int, 1)
	ln, err := l.server.Listen("tcp", ":82")
	must(t, err)
	defer ln.Close()
	go answer(ln, func(c net.Conn) {
		rc, _ := c.(*net.TCPConn).SyscallConn()
		rc.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
			if err == nil {
				sizes <- int(info.Snd_mss)
			}
		})
	})
	l.mirror(t, Options{Ways: l.keeper})
	const options = 12 // time stamps
	for mtu, change := range map[int]string{1500: "", 1300: "ip link set eth0 mtu 1300"} {
		if change != "" {
			l.run(t, change)
		}
		for six, server := range servers {
			must(t, l.connect("tcp", fmt.Sprintf("%s:82", server), 3*time.Second))
			if got, want := <-sizes, mtu-[2]int{40, 60}[six]-options; got != want {
				t.Errorf("to %s with an MTU of %d: segments of %d bytes, want %d", server, mtu, got, want)
			}
		}
		if change != "" {
			l.run(t, "ip link set eth0 mtu 1500")
		}
	}
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
}
