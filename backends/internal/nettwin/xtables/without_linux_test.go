package xtables

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// ipset makes an empty set, which no twin gets.
func ipset(t *testing.T, n *netlab.Node, name string) {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: int(n.NS().Fd())})
	must(t, err)
	defer c.Close()
	const create, protocol, setname, typename, revision, family, data = 6<<8 | 2, 1, 2, 3, 4, 5, 7
	ae := netlink.NewAttributeEncoder()
	ae.Uint8(protocol, 7)
	ae.String(setname, name)
	ae.String(typename, "hash:ip")
	ae.Uint8(revision, 0)
	ae.Uint8(family, unix.NFPROTO_IPV4)
	ae.Nested(data, func(*netlink.AttributeEncoder) error { return nil })
	b, err := ae.Encode()
	must(t, err)
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: create, Flags: netlink.Request | netlink.Acknowledge | netlink.Create},
		Data:   append([]byte{unix.NFPROTO_IPV4, 0, 0, 0}, b...),
	})
	must(t, err)
}

// TestRulesWithSetsAreNamed: they are left out, wherever they stand, and the rest
// still leads where it led.
func TestRulesWithSetsAreNamed(t *testing.T) {
	_, host, twin := pair(t)
	ipset(t, host, "blocked")
	give(t, host, rules+`
iptables-legacy -N SETS
iptables-legacy -A SETS -m set --match-set blocked src -j DROP
iptables-legacy -A SETS -p tcp --dport 1 -j ACCEPT
iptables-legacy -A SETS -m set --match-set blocked dst -j DROP
iptables-legacy -I INPUT -m set --match-set blocked src -j DROP
iptables-legacy -I INPUT 3 -j SETS
iptables-legacy -A FORWARD -p udp -m set ! --match-set blocked src -j DOCKER-USER
iptables-legacy -A FORWARD -p icmp -g SETS
iptables-legacy -A OUTPUT -j SET --add-set blocked dst
iptables-legacy -P OUTPUT DROP`)
	ts, err := Read(int(host.NS().Fd()))
	must(t, err)
	notes, err := Load(int(twin.NS().Fd()), ts)
	must(t, err)
	want := []string{
		"rules of iptables-legacy with SET in chain filter OUTPUT are not in the twin: 1 of them",
		"rules of iptables-legacy with set in chain filter FORWARD are not in the twin: 1 of them",
		"rules of iptables-legacy with set in chain filter INPUT are not in the twin: 1 of them",
		"rules of iptables-legacy with set in chain filter SETS are not in the twin: 2 of them",
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	sets := regexp.MustCompile(`(?m)^.*blocked.*\n`)
	if a, b := sets.ReplaceAllString(saved(t, host), ""), saved(t, twin); a != b {
		t.Errorf("host without those rules, and twin:\n%s", strings.Join(nstest.Difference(a, b), "\n"))
	}
}
