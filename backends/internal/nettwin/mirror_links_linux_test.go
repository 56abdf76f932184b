package nettwin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestKindsOfLinks has the host hold a link of every kind that this test can count
// on a kernel for, each up and with an address, and one with every odd name.
func TestKindsOfLinks(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.onHostAll(t, `
ip link add br0 type bridge
ip link add mv0 link eth0 type macvlan mode bridge
ip link add vx0 type vxlan id 5 dstport 4789 dev eth0
ip link add ve0 type veth peer name ve1
ip tuntap add tun0 mode tun
ip tuntap add tap0 mode tap
ip link set ve1 master br0
ip link set tap0 group 7
ip link set mv0 arp off
`)
	links := []string{"br0", "mv0", "vx0", "ve0", "tun0", "tap0"}
	// Fifteen bytes, dots, signs, what looks like an option and what is no text.
	for _, name := range []string{"exactly15bytes.", "a.b-c_d+e@f", "0", "--", "ü€", "\x01\x7f", "$(id)"} {
		_, err := l.host.Run(t.Context(), "ip", "link", "add", "name", name, "type", "bridge")
		must(t, err)
		links = append(links, name)
	}
	for i, name := range links {
		for _, argv := range [][]string{
			{"ip", "link", "set", "dev", name, "up"},
			{"ip", "addr", "add", fmt.Sprintf("10.50.%d.1/24", i), "dev", name},
			{"ip", "-6", "addr", "add", fmt.Sprintf("fd50:%d::1/64", i), "dev", name, "nodad"},
		} {
			_, err := l.host.Run(t.Context(), argv...)
			must(t, err)
		}
	}
	l.mirror(t, Options{})
	h, err := observe(int(l.host.NS().Fd()))
	must(t, err)
	w, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	for _, a := range h.links {
		i := slices.IndexFunc(w.links, func(b rtnl.Link) bool { return b.Name == a.Name })
		if i < 0 {
			t.Errorf("link %q is not in the twin", a.Name)
			continue
		}
		b := w.links[i]
		const told = unix.IFF_UP | unix.IFF_NOARP | unix.IFF_POINTOPOINT | unix.IFF_MULTICAST | unix.IFF_BROADCAST
		if a.Index != b.Index || a.Type != b.Type || a.MAC.String() != b.MAC.String() || a.MTU != b.MTU || a.Group != b.Group || a.Flags&told != b.Flags&told {
			t.Errorf("link %q on the host\n%+v\nin the twin\n%+v", a.Name, a, b)
		}
	}
	was, now := snapshot{}, snapshot{}
	h.describe(was)
	w.describe(now)
	for _, k := range []Kind{KindAddress, KindRoute} {
		for _, d := range (snapshot{k: was[k]}).difference(snapshot{k: now[k]}) {
			t.Errorf("host and twin differ: %s", d)
		}
	}
	notes := strings.Join(l.twin.Notes(), "\n")
	for _, want := range []string{
		"link br0 (bridge) is in the twin a plain Ethernet interface", "link mv0 (macvlan) is in the twin a plain Ethernet interface",
		"link vx0 (vxlan) is in the twin a plain Ethernet interface", "link tun0 (tun) is in the twin a tun; its other end is the host's link",
		"link ve1 is no port of br0 in the twin", `link \x01\x7f (bridge) is in the twin`,
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note %q in:\n%s", want, notes)
		}
	}
	if strings.Contains(notes, "link tap0") || strings.Contains(notes, "link ve0") {
		t.Errorf("a note on what is the same:\n%s", notes)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
}

// TestNotesOnKinds forges the links that this kernel may not have.
func TestNotesOnKinds(t *testing.T) {
	forge := func(kind string, typ uint16, flags uint32) rtnl.Link {
		return rtnl.Link{Name: "x0", Kind: kind, Type: typ, Flags: flags}
	}
	const tun = "link x0 (%s) is in the twin a tun; its other end is the host's link"
	const ether = "link x0 (%s) is in the twin a plain Ethernet interface"
	for _, c := range []struct {
		link rtnl.Link
		bare bool
		want string
	}{
		{forge("", unix.ARPHRD_ETHER, unix.IFF_BROADCAST), false, ""},
		{forge("wireguard", unix.ARPHRD_NONE, unix.IFF_POINTOPOINT|unix.IFF_NOARP), true, "link x0 (wireguard) is in the twin a tun; its keys and peers stay on the host"},
		{forge("ppp", unix.ARPHRD_PPP, unix.IFF_POINTOPOINT|unix.IFF_NOARP), true, fmt.Sprintf(tun, "ppp")},
		{forge("ipip", unix.ARPHRD_TUNNEL, unix.IFF_NOARP), true, fmt.Sprintf(tun, "ipip")},
		{forge("sit", unix.ARPHRD_SIT, unix.IFF_NOARP), true, fmt.Sprintf(tun, "sit")},
		{forge("gre", unix.ARPHRD_IPGRE, unix.IFF_POINTOPOINT|unix.IFF_NOARP), true, fmt.Sprintf(tun, "gre")},
		{forge("ip6tnl", unix.ARPHRD_TUNNEL6, unix.IFF_POINTOPOINT|unix.IFF_NOARP), true, fmt.Sprintf(tun, "ip6tnl")},
		{forge("xfrm", unix.ARPHRD_NONE, unix.IFF_NOARP), true, fmt.Sprintf(tun, "xfrm")},
		{forge("gretap", unix.ARPHRD_ETHER, unix.IFF_BROADCAST), false, fmt.Sprintf(ether, "gretap")},
		{forge("vlan", unix.ARPHRD_ETHER, unix.IFF_BROADCAST), false, fmt.Sprintf(ether, "vlan")},
		{forge("bond", unix.ARPHRD_ETHER, unix.IFF_BROADCAST|unix.IFF_MASTER), false, fmt.Sprintf(ether, "bond")},
		{forge("vrf", unix.ARPHRD_ETHER, unix.IFF_NOARP|unix.IFF_MASTER), false, fmt.Sprintf(ether, "vrf")},
		{forge("dummy", unix.ARPHRD_ETHER, unix.IFF_NOARP), false, fmt.Sprintf(ether, "dummy")},
		{forge("ipvlan", unix.ARPHRD_ETHER, unix.IFF_NOARP), false, fmt.Sprintf(ether, "ipvlan")},
		{forge("", unix.ARPHRD_INFINIBAND, unix.IFF_BROADCAST), false, "link x0 is in the twin a plain Ethernet interface"},
	} {
		r := &replica{host: &network{}}
		r.noteLink(c.link)
		if got := strings.Join(r.notes, "\n"); got != c.want || bare(c.link) != c.bare {
			t.Errorf("%s of type %d: bare %t, note %q; want %t, %q", c.link.Kind, c.link.Type, bare(c.link), got, c.bare, c.want)
		}
	}
}

// TestNotesOnWhatIsMissing has the host shape and encrypt its traffic.
func TestNotesOnWhatIsMissing(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"), nstest.Tool("tc"))
	l.onHostAll(t, `
tc qdisc add dev eth0 root handle 1: pfifo limit 77
ip xfrm policy add src 10.0.0.0/8 dst 10.1.0.0/16 dir out action block
ip -6 route add 2001:db8:1::/48 encap seg6local action End dev eth0
`)
	l.mirror(t, Options{})
	got := l.twin.Notes()
	for _, want := range []string{
		"queueing discipline dev eth0 root pfifo", "1 IPsec policies are not in the twin: what it sends goes by the host's",
	} {
		if !slices.ContainsFunc(got, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("no note %q in:\n%s", want, strings.Join(got, "\n"))
		}
	}
	if len(got) != 2 {
		t.Errorf("%d notes, want 2:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// TestHundredLinks is a host with many.
func TestHundredLinks(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "link add br%d type bridge\nlink set br%d up\naddr add 10.60.%d.1/24 dev br%d\n", i, i, i, i)
	}
	l.batch(t, lines.String())
	echo(t, l.server, "tcp", ":80")
	l.mirror(t, Options{})
	l.seenAs(t, "tcp", "203.0.113.80:80")
	w, err := observe(int(l.inside.NS().Fd()))
	must(t, err)
	if n := len(w.links); n != 103 {
		t.Errorf("%d links in the twin, want 103", n)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
}

// TestLinksMadeInside names the kind of what the inside makes, what it lies on and
// what it belongs to: nothing of it can be planned, so it has to be seen.
func TestLinksMadeInside(t *testing.T) {
	l := newLab(t, nstest.Tool("ip"))
	l.mirror(t, Options{})
	for _, line := range []string{
		"ip link add br9 type bridge", "ip link set eth1 master br9", "ip link add mv9 link eth0 type macvlan mode private",
		"ip link add vx9 type vxlan id 77 dstport 4789 dev eth0", "ip tuntap add tun9 mode tun",
	} {
		l.run(t, line)
	}
	got := macs.ReplaceAllString(strings.Join(l.lines(t), "\n"), "address MAC")
	for _, want := range []string{
		"ip link add br9 down type bridge address MAC", "ip link set eth1 up type tun address MAC mtu 1420 txqueuelen 10000 master br9 (was up type tun",
		"ip link add mv9 down type macvlan link eth0 options ", "ip link add vx9 down type vxlan id 77 options ", "ip link add tun9 down type tun mtu 1500",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	must(t, l.twin.Reset(t.Context()))
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("after a reset: %q", got)
	}
}
