package nettwin

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/sockdiag"
)

// on is a socket of the host: "tcp 127.0.0.1:80", "udp [::]:53 only6".
func on(s string) sockdiag.Socket {
	w := strings.Fields(s)
	out := sockdiag.Socket{Proto: unix.IPPROTO_TCP, Addr: netip.MustParseAddrPort(w[1]), Only6: len(w) > 2}
	if w[0] == "udp" {
		out.Proto = unix.IPPROTO_UDP
	}
	return out
}

// TestCaptures lists what is taken for what the host offers.
func TestCaptures(t *testing.T) {
	every := gates{}
	for i, f := range []nft.Flows{nft.Direct, nft.Translated} {
		for _, six := range []bool{false, true} {
			every[gate{f, unix.IPPROTO_TCP, six}] = netip.AddrPortFrom(gateV4, uint16(i+1))
			every[gate{f, unix.IPPROTO_UDP, six}] = netip.AddrPortFrom(gateV4, uint16(i+1))
		}
	}
	for _, c := range []struct {
		name   string
		onHost []string
		ports  []uint16
		inside []string
		want   []string
	}{
		{"an allowed port where nobody listens", nil, []uint16{80}, nil, nil},
		{"an allowed port", []string{"tcp 127.0.0.1:80"}, []uint16{80}, nil, []string{"nat tcp 127.0.0.1:80", "tcp 127.0.0.1:80"}},
		{"a port that is not allowed is taken behind nat only", []string{"tcp 127.0.0.1:22"}, []uint16{80}, nil, []string{"nat tcp 127.0.0.1:22"}},
		{"every address, by both families", []string{"tcp [::]:80"}, []uint16{80}, nil, []string{"nat tcp 0.0.0.0:80", "nat tcp [::]:80", "tcp 0.0.0.0:80", "tcp [::]:80"}},
		{"every IPv6 address", []string{"tcp [::]:80 only6"}, []uint16{80}, nil, []string{"nat tcp [::]:80", "tcp [::]:80"}},
		{"IPv4 in an IPv6 socket", []string{"tcp [::ffff:127.0.0.1]:80"}, []uint16{80}, nil, []string{"nat tcp 127.0.0.1:80", "tcp 127.0.0.1:80"}},
		{"two sockets on one address", []string{"tcp 127.0.0.1:80", "tcp 127.0.0.1:80"}, []uint16{80}, nil, []string{"nat tcp 127.0.0.1:80", "tcp 127.0.0.1:80"}},
		{"datagrams", []string{"udp 192.0.2.2:80"}, []uint16{80}, nil, []string{"nat udp 192.0.2.2:80", "udp 192.0.2.2:80"}},
		{"a stream that is released leaves the datagrams", []string{"tcp 127.0.0.1:80", "udp 127.0.0.1:80"}, []uint16{80}, []string{"tcp 127.0.0.1:80"}, []string{"nat udp 127.0.0.1:80", "udp 127.0.0.1:80"}},
		{"a name server that is inside too", []string{"udp 127.0.0.53:53", "tcp 127.0.0.53:53"}, nil, []string{"udp 0.0.0.0:53"}, []string{"nat tcp 127.0.0.53:53", "tcp 127.0.0.53:53"}},
		{"the socket of a client is no service", []string{"udp 0.0.0.0:40000"}, nil, nil, nil},
		{"unless its port is allowed", []string{"udp 0.0.0.0:40000"}, []uint16{40000}, nil, []string{"nat udp 0.0.0.0:40000", "udp 0.0.0.0:40000"}},
		{"a service behind nat on an address of its own", []string{"udp 127.0.0.11:47011"}, nil, nil, []string{"nat udp 127.0.0.11:47011"}},
		{"a name server", []string{"udp 127.0.0.53:53", "tcp 127.0.0.53:53"}, nil, nil, []string{"nat tcp 127.0.0.53:53", "nat udp 127.0.0.53:53", "tcp 127.0.0.53:53", "udp 127.0.0.53:53"}},
		{"a name server on every address, only where it is named", []string{"udp 0.0.0.0:53"}, nil, nil, []string{"nat udp 0.0.0.0:53", "udp 127.0.0.53:53"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &loopback{gates: every, ports: c.ports, servers: []netip.Addr{stubs[0]}, released: map[service]bool{}}
			for _, s := range c.onHost {
				l.onHost = append(l.onHost, on(s))
			}
			var inside []sockdiag.Socket
			for _, s := range c.inside {
				inside = append(inside, on(s))
			}
			l.release(inside)
			var got []string
			for _, s := range l.captures(inside) {
				words := map[nft.Flows]string{nft.Translated: "nat "}[s.Flows] + map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[s.Proto]
				got = append(got, fmt.Sprint(words, " ", netip.AddrPortFrom(s.Addr, s.Port)))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
