package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
)

// Lab is a set of nodes.
type Lab struct{ nodes []*Node }

// Node is one machine of a lab: a network namespace with lo up.
type Node struct {
	Name string
	ns   *os.File
	h    *netlink.Handle
}

// New makes an empty lab.
func New() *Lab { return &Lab{} }

// Close ends the lab. Processes and sockets that others left in a node keep
// that node alive until they end.
func (l *Lab) Close() error {
	var errs []error
	for _, n := range l.nodes {
		n.h.Close()
		errs = append(errs, n.ns.Close())
	}
	l.nodes = nil
	return errors.Join(errs...)
}

// Node adds a machine.
func (l *Lab) Node(name string) (*Node, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	n := &Node{Name: name, ns: ns}
	err = n.Do(func() (err error) {
		n.h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	l.nodes = append(l.nodes, n)
	// Link-local addresses would be tentative, and neighbours unanswered, for the
	// first second or two.
	return n, errors.Join(n.Sysctl("ipv6/conf/all/accept_dad", "0"), n.Sysctl("ipv6/conf/default/accept_dad", "0"), n.Up("lo"))
}

// Wire joins two nodes with a cable and switches both ends on.
func (l *Lab) Wire(a *Node, aLink string, b *Node, bLink string) error {
	v := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aLink}, PeerName: bLink,
		PeerNamespace: netlink.NsFd(b.ns.Fd()),
	}
	if err := a.h.LinkAdd(v); err != nil {
		return fmt.Errorf("wire %s %s to %s %s: %w", a.Name, aLink, b.Name, bLink, err)
	}
	return errors.Join(a.Up(aLink), b.Up(bLink))
}

// Bridge joins links of the node, so that it is a switch.
func (n *Node) Bridge(name string, ports ...string) error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := n.h.LinkAdd(br); err != nil {
		return fmt.Errorf("add bridge %s to %s: %w", name, n.Name, err)
	}
	for _, p := range ports {
		l, err := n.link(p)
		if err != nil {
			return err
		}
		if err := n.h.LinkSetMaster(l, br); err != nil {
			return fmt.Errorf("make %s of %s a port of %s: %w", p, n.Name, name, err)
		}
	}
	return n.Up(name)
}

// NS is the node's namespace; it stays the lab's to close.
func (n *Node) NS() *os.File { return n.ns }

// Do runs f on a throw-away thread in the node. Sockets that f opens itself, by
// numeric address, belong to the node for ever; goroutines that it starts do
// not run there.
func (n *Node) Do(f func() error) error { return netns.Do(int(n.ns.Fd()), f) }

func (n *Node) link(name string) (netlink.Link, error) {
	l, err := n.h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find %s of %s: %w", name, n.Name, err)
	}
	return l, nil
}

// Up switches a link on.
func (n *Node) Up(name string) error {
	l, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.h.LinkSetUp(l); err != nil {
		return fmt.Errorf("set %s of %s up: %w", name, n.Name, err)
	}
	return nil
}

// MTU sets the MTU of a link.
func (n *Node) MTU(name string, mtu int) error {
	l, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.h.LinkSetMTU(l, mtu); err != nil {
		return fmt.Errorf("set mtu of %s of %s: %w", name, n.Name, err)
	}
	return nil
}

// Address adds addresses ("192.0.2.2/24") to a link. They are usable at once.
func (n *Node) Address(name string, addrs ...string) error {
	l, err := n.link(name)
	if err != nil {
		return err
	}
	for _, s := range addrs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return err
		}
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := n.h.AddrAdd(l, a); err != nil {
			return fmt.Errorf("add address %s to %s of %s: %w", s, name, n.Name, err)
		}
	}
	return nil
}

// Route adds a route to dst ("203.0.113.0/24", "0.0.0.0/0", "::/0") by way of a
// gateway.
func (n *Node) Route(dst, via string) error { return n.RouteMetric(dst, via, 0) }

// RouteMetric adds a route that others of a lower metric are preferred to. Zero is
// the kernel's default.
func (n *Node) RouteMetric(dst, via string, metric int) error {
	p, err := netip.ParsePrefix(dst)
	if err != nil {
		return err
	}
	gw, err := netip.ParseAddr(via)
	if err != nil {
		return err
	}
	err = n.h.RouteAdd(&netlink.Route{
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		Gw:  gw.AsSlice(), Priority: metric,
	})
	if err != nil {
		return fmt.Errorf("add route %s via %s to %s: %w", dst, via, n.Name, err)
	}
	return nil
}

// Move moves a link to another namespace.
func (n *Node) Move(name string, ns int) error {
	l, err := n.link(name)
	if err != nil {
		return err
	}
	if err := n.h.LinkSetNsFd(l, ns); err != nil {
		return fmt.Errorf("move %s of %s: %w", name, n.Name, err)
	}
	return nil
}

// Sysctl sets a value below /proc/sys/net ("ipv4/ip_forward").
func (n *Node) Sysctl(name, value string) error {
	err := n.Do(func() error {
		f, err := os.OpenFile(filepath.Join("/proc/sys/net", name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("set sysctl %s of %s: %w", name, n.Name, err)
	}
	return nil
}

// Forward makes the node a router.
func (n *Node) Forward() error {
	return errors.Join(n.Sysctl("ipv4/ip_forward", "1"), n.Sysctl("ipv6/conf/all/forwarding", "1"))
}

// Listen listens in the node.
func (n *Node) Listen(network, addr string) (ln net.Listener, err error) {
	err = n.Do(func() (err error) {
		ln, err = net.Listen(network, addr)
		return err
	})
	return ln, err
}

// ListenPacket listens for datagrams in the node.
func (n *Node) ListenPacket(network, addr string) (c net.PacketConn, err error) {
	err = n.Do(func() (err error) {
		c, err = net.ListenPacket(network, addr)
		return err
	})
	return c, err
}

// Dial connects from the node to a numeric address.
func (n *Node) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.Do(func() (err error) {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// Start starts a program in the node.
func (n *Node) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs a program in the node and returns what it printed.
func (n *Node) Run(ctx context.Context, argv ...string) (string, error) {
	var out []byte
	err := n.Do(func() (err error) {
		out, err = exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		return string(out), fmt.Errorf("run %s in %s: %w: %s", argv[0], n.Name, err, out)
	}
	return string(out), nil
}

// Hold makes a node of a namespace that somebody else made. Closing the lab
// leaves the original open.
func (l *Lab) Hold(name string, ns int) (*Node, error) {
	fd, err := unix.FcntlInt(uintptr(ns), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("hold node %s: %w", name, err)
	}
	n := &Node{Name: name, ns: os.NewFile(uintptr(fd), name)}
	err = n.Do(func() (err error) {
		n.h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		n.ns.Close()
		return nil, fmt.Errorf("hold node %s: %w", name, err)
	}
	l.nodes = append(l.nodes, n)
	return n, nil
}
