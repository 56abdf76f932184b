package nettwin

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// wireError is an entry of a socket's queue of errors.
type wireError struct {
	errno     unix.Errno
	typ, code byte
	info      uint32
	from      netip.Addr
}

// like reports whether two are the same to an application. An error that the
// kernel knows without asking has no type; one of the host about its own link comes
// from an address that in the twin is the twin's.
func (e wireError) like(host wireError, own netip.Addr) bool {
	if host.typ == 0 {
		e.typ, e.code, e.from = 0, 0, host.from
	}
	if host.from == own {
		e.from = own
	}
	return e == host
}

// wireError waits for the next.
func (p *pinger) wireError(t *testing.T) (e wireError) {
	t.Helper()
	oob := make([]byte, 512)
	eventually(t, "an error comes back", func() bool {
		must(t, control(p.File, func(fd int) error {
			_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 2048), oob, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
			if err == unix.EAGAIN {
				return nil
			}
			ms, perr := unix.ParseSocketControlMessage(oob[:n])
			for _, m := range ms {
				if d := m.Data; len(d) >= 24 { // struct sock_extended_err, then the sender
					e = wireError{unix.Errno(binary.NativeEndian.Uint32(d)), d[5], d[6], binary.NativeEndian.Uint32(d[8:]), netip.Addr{}}
					switch from := d[16:]; binary.NativeEndian.Uint16(from) {
					case unix.AF_INET:
						e.from = netip.AddrFrom4([4]byte(from[4:8]))
					case unix.AF_INET6:
						e.from = netip.AddrFrom16([16]byte(from[8:24]))
					}
				}
			}
			return errors.Join(err, perr)
		}))
		return e.errno != 0
	})
	return e
}

// TestEchoErrors asks for things that end in an ICMP error, on the host and in
// the twin; both are told the same.
func TestEchoErrors(t *testing.T) {
	for _, mode := range echoModes {
		t.Run(mode.name, func(t *testing.T) {
			l := newLab(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"))
			must(t, l.host.Sysctl("ipv4/ping_group_range", mode.groups))
			must(t, l.gw1.Sysctl("ipv4/icmp_ratelimit", "0"))
			must(t, l.gw1.Sysctl("ipv6/icmp/ratelimit", "0"))
			for _, line := range []string{"ip route add unreachable 203.0.113.67", "ip -6 route add unreachable 2001:db8:80::67"} {
				_, err := l.gw1.Run(t.Context(), strings.Fields(line)...)
				must(t, err)
			}
			_, err := l.gw1.Run(t.Context(), "nft", "table inet f { chain through { type filter hook forward priority 0; "+
				"ip daddr 203.0.113.68 reject with icmpx admin-prohibited; ip6 daddr 2001:db8:80::68 reject with icmpx admin-prohibited; }; }")
			must(t, err)
			must(t, l.gw1.MTU("out", 1300))
			must(t, l.host.Sysctl("ipv4/neigh/eth0/retrans_time_ms", "50"))
			l.mirror(t, Options{})
			other := l.neighbour(t)
			for _, c := range []struct {
				name, addr string
				ttl        int
				whole      bool
				size       int
			}{
				{"a router says unreachable, v4", "203.0.113.67", 64, false, 8},
				{"a router says unreachable, v6", "2001:db8:80::67", 64, false, 8},
				{"a router says prohibited, v4", "203.0.113.68", 64, false, 8},
				{"a router says prohibited, v6", "2001:db8:80::68", 64, false, 8},
				{"the time to live ends at the first router, v4", "203.0.113.80", 1, false, 8},
				{"the time to live ends at the first router, v6", "2001:db8:80::80", 1, false, 8},
				{"too big for the path and not to be cut, v4", "203.0.113.80", 64, true, 1400},
				{"too big for the path and not to be cut, v6", "2001:db8:80::80", 64, true, 1400},
				{"nobody at this address on the link", "192.0.2.77", 64, false, 8},
			} {
				t.Run(c.name, func(t *testing.T) {
					// The twin first, then the host, whose kernel knows the path's MTU by
					// then, and another twin, for which the host's kernel knows it.
					var told []wireError
					for _, n := range []*netlab.Node{l.inside, l.host, other.inside} {
						p := ping(t, n, c.addr)
						must(t, control(p.File, p.options(c.ttl, c.whole)))
						if _, err := p.Write(p.request(77, 1, make([]byte, c.size))); err != nil && !errors.Is(err, unix.EMSGSIZE) {
							t.Fatal(err)
						}
						told = append(told, p.wireError(t))
					}
					own := netip.MustParseAddr("192.0.2.2")
					if !told[0].like(told[1], own) || !told[2].like(told[1], own) {
						t.Errorf("the twin is told %+v and %+v, the host %+v", told[0], told[2], told[1])
					}
				})
			}
		})
	}
}

func (p *pinger) options(ttl int, whole bool) func(fd int) error {
	return func(fd int) error {
		if p.six {
			discover := unix.IPV6_PMTUDISC_DONT
			if whole {
				discover = unix.IPV6_PMTUDISC_DO
			}
			return errors.Join(unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVERR, 1),
				unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS, ttl), unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER, discover))
		}
		discover := unix.IP_PMTUDISC_DONT
		if whole {
			discover = unix.IP_PMTUDISC_DO
		}
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_RECVERR, 1),
			unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_TTL, ttl), unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MTU_DISCOVER, discover))
	}
}
