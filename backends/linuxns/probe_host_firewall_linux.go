package linuxns

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/conntrack"
)

// wayBack names packet filters that drop what arrives on another interface than
// the answer would leave by, as firewalld's do for IPv6. They look at packets
// before anything of ours could tell them of a lane.
func wayBack(h *hostNet) (backends.Finding, error) {
	seen, err := h.firewall()
	if err != nil {
		return backends.Finding{}, err
	}
	if seen.RPFilter == nil {
		return fine("no packet filter asks for it")
	}
	return lesser("firewalld: IPv6_rpfilter=loose in firewalld.conf(5); others: leave that rule to rp_filter",
		"%s: circuits that a change moves to another interface are Unverifiable", listed(seen.RPFilter))
}

// owners names packet filters that ask who sends. In a twin they see the view's
// processes; on the host they see the process that carries its traffic, which is
// root's and in a cgroup of its own, and canaries with ids of their own.
func owners(h *hostNet) (backends.Finding, error) {
	seen, err := h.firewall()
	if err != nil {
		return backends.Finding{}, err
	}
	if seen.Owners == nil {
		return fine("no packet filter asks who sends")
	}
	return lesser("an exception for root, where root may do what the named users may",
		"%s: on the host root sends what a view sends, and a canary is nobody; a circuit that is refused for that is Unverifiable", listed(seen.Owners))
}

// transparentProxy says where the host sends its own processes' traffic instead. A
// twin has the same translation, and what it redirects is dialled on the host as
// written; whether the host then did the same, the kernel's table of connections
// tells.
func transparentProxy(h *hostNet) (backends.Finding, error) {
	seen, err := h.firewall()
	if err != nil {
		return backends.Finding{}, err
	}
	if !seen.OutputNAT {
		return fine("nothing translates what the host itself sends")
	}
	if err := knowsTranslations(); err != nil {
		return lesser("a kernel with CONFIG_NF_CT_NETLINK; modprobe nf_conntrack_netlink",
			"the host translates what it sends, and how is not told: %v; such circuits are Unverifiable", err)
	}
	var to []string
	for _, r := range seen.Redirects {
		at := "port " + fmt.Sprint(r.Port)
		if r.Addr.IsValid() {
			at = netip.AddrPortFrom(r.Addr, r.Port).String()
		}
		if r.Port != 0 && !slices.Contains(to, at) {
			to = append(to, at)
		}
	}
	if to == nil {
		return fine("what the host sends is translated, and in a view, too; where the two differ a circuit is Unverifiable")
	}
	return fine("the host's own traffic is led to %s, and a view's, too", listed(to))
}

// knowsTranslations asks for a connection that nobody has, in a namespace of its own.
func knowsTranslations() error {
	if err := ownNet(); err != nil {
		return err
	}
	ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	c, err := conntrack.Dial(ns)
	if err != nil {
		return err
	}
	defer c.Close()
	nobody := netip.MustParseAddrPort("192.0.2.1:1")
	if _, _, err := c.Translated(unix.IPPROTO_TCP, nobody, nobody); err != nil && !errors.Is(err, conntrack.ErrUntracked) {
		return fmt.Errorf("ask for a connection: %w", err)
	}
	return nil
}
