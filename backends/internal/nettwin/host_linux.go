package nettwin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// network is what a namespace has, as the kernel dumps it.
type network struct {
	links     []rtnl.Link
	addresses [][]byte
	labels    [][]byte
	nexthops  [][]byte
	routes    [][]byte // without those the kernel makes by itself
	rules     [][]byte
	neighbors [][]byte // static ones and proxies
	qdiscs    [][]byte
	policies  [][]byte // of IPsec, and its security associations
	states    [][]byte
	sysctls   map[string]string
}

// observe reads the network of the namespace ns.
func observe(ns int) (*network, error) {
	c, err := rtnl.Dial(ns)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	n := &network{}
	labels, labelHead := rtnl.Labels()
	if n.links, err = c.Links(); err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, d := range []struct {
		what string
		typ  uint16
		head []byte
		into *[][]byte
	}{
		{"addresses", unix.RTM_GETADDR, make([]byte, unix.SizeofIfAddrmsg), &n.addresses},
		{"address labels", labels, labelHead, &n.labels},
		{"nexthops", unix.RTM_GETNEXTHOP, make([]byte, rtnl.SizeofNhmsg), &n.nexthops},
		{"neighbours", unix.RTM_GETNEIGH, make([]byte, unix.SizeofNdMsg), &n.neighbors},
		{"proxies", unix.RTM_GETNEIGH, proxies(), &n.neighbors},
		{"queueing disciplines", unix.RTM_GETQDISC, make([]byte, rtnl.SizeofTcmsg), &n.qdiscs},
	} {
		ms, err := c.Dump(d.typ, d.head)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", d.what, err)
		}
		for _, m := range ms {
			if d.typ != unix.RTM_GETNEIGH || n.static(m) {
				*d.into = append(*d.into, m)
			}
		}
	}
	if n.routes, err = dumpRoutes(c); err != nil {
		return nil, err
	}
	if n.rules, err = dumpRules(c); err != nil {
		return nil, err
	}
	if err := n.observeIPsec(ns); err != nil {
		return nil, err
	}
	err = netns.Do(ns, func() (err error) {
		n.sysctls, err = readSysctls()
		return err
	})
	return n, err
}

// observeIPsec reads what a kernel may not know.
func (n *network) observeIPsec(ns int) error {
	c, err := rtnl.DialXfrm(ns)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if n.policies, err = c.Policies(); err != nil {
		return fmt.Errorf("list IPsec policies: %w", err)
	}
	if n.states, err = c.Associations(); err != nil {
		return fmt.Errorf("list security associations: %w", err)
	}
	return nil
}

// static reports a neighbour that somebody configured. A link that does not ask
// has one of the kernel's for whatever was sent to.
func (n *network) static(m []byte) bool {
	if !rtnl.Static(m) {
		return false
	}
	at := index(m[4:])
	i := slices.IndexFunc(n.links, func(l rtnl.Link) bool { return l.Index == at })
	asks := i < 0 || n.links[i].Flags&(unix.IFF_NOARP|unix.IFF_LOOPBACK) == 0
	return asks || binary.NativeEndian.Uint16(m[8:])&unix.NUD_NOARP == 0
}

// missing says what the host has and no twin gets.
func missing(host *network) []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, change.Escape(fmt.Sprintf(format, args...))) }
	for _, m := range host.qdiscs {
		if key, rest := rtnl.QdiscKey(m, host.name); rtnl.QdiscSet(m) {
			note("queueing discipline %s %s is not in the twin", key, rest)
		}
	}
	if n := len(host.policies); n > 0 {
		note("%d IPsec policies are not in the twin: what it sends goes by the host's", n)
	}
	for _, l := range host.links {
		if l.XDP {
			note("the XDP program of link %s is not in the twin", l.Name)
		}
	}
	return notes
}

// dumpRoutes lists the routes but for those that the kernel makes by itself.
func dumpRoutes(c *rtnl.Conn) ([][]byte, error) {
	ms, err := dumpFamilies(c, unix.RTM_GETROUTE, unix.SizeofRtMsg)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return slices.DeleteFunc(ms, rtnl.Local), nil
}

func dumpRules(c *rtnl.Conn) ([][]byte, error) {
	ms, err := dumpFamilies(c, unix.RTM_GETRULE, rtnl.SizeofRuleHdr)
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	return ms, nil
}

// dumpFamilies dumps what the kernel keeps for IPv4 and IPv6 apart.
func dumpFamilies(c *rtnl.Conn, typ uint16, size int) ([][]byte, error) {
	var out [][]byte
	for _, af := range []byte{unix.AF_INET, unix.AF_INET6} {
		head := make([]byte, size)
		head[0] = af
		ms, err := c.Dump(typ, head)
		if err != nil {
			return nil, err
		}
		out = append(out, ms...)
	}
	return out, nil
}

// proxies asks for the proxy entries, which a plain dump of neighbours leaves out.
func proxies() []byte {
	b := make([]byte, unix.SizeofNdMsg)
	b[10] = unix.NTF_PROXY
	return b
}

// byName finds the number of the link that has a name.
func (n *network) byName(name string) int {
	for _, l := range n.links {
		if l.Name == name {
			return l.Index
		}
	}
	return 0
}

// mac of the link with a number.
func (n *network) mac(index int) []byte {
	for _, l := range n.links {
		if l.Index == index {
			return l.MAC
		}
	}
	return nil
}

// name of the link with a number; "#7" when there is none.
func (n *network) name(index int) string {
	for _, l := range n.links {
		if l.Index == index {
			return l.Name
		}
	}
	return fmt.Sprintf("#%d", index)
}

// own lists the addresses of the namespace itself.
func (n *network) own() []netip.Addr {
	var out []netip.Addr
	for _, m := range n.addresses {
		typ := uint16(unix.IFA_LOCAL)
		if m[0] == unix.AF_INET6 {
			typ = unix.IFA_ADDRESS
		}
		if a, ok := netip.AddrFromSlice(rtnl.Find(m[unix.SizeofIfAddrmsg:], typ)); ok {
			out = append(out, a)
		}
	}
	return out
}

func index(b []byte) int { return int(binary.NativeEndian.Uint32(b)) }
