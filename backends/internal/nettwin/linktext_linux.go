package nettwin

import (
	"cmp"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// linkText is everything of a link that somebody can set, and nothing that
// changes by itself.
func linkText(l rtnl.Link, n *network) string {
	w := []string{"down"}
	if l.Up() {
		w[0] = "up"
	}
	if l.Kind != "" {
		w = append(w, "type", l.Kind)
	}
	if len(l.MAC) > 0 {
		w = append(w, "address", l.MAC.String())
	}
	w = append(w, fmt.Sprintf("mtu %d txqueuelen %d", l.MTU, l.QueueLen))
	for _, f := range []struct {
		bit  uint32
		word string
	}{{unix.IFF_NOARP, "arp off"}, {unix.IFF_PROMISC, "promisc on"}, {unix.IFF_ALLMULTI, "allmulticast on"}} {
		if l.Flags&f.bit != 0 {
			w = append(w, f.word)
		}
	}
	if l.Flags&unix.IFF_MULTICAST == 0 && !l.Loopback() {
		w = append(w, "multicast off")
	}
	if l.Master != 0 {
		w = append(w, "master", n.name(l.Master))
	}
	if l.XDP {
		w = append(w, "xdp on")
	}
	if l.Alias != "" {
		w = append(w, `alias "`+l.Alias+`"`)
	}
	for _, a := range l.AltNames {
		w = append(w, "altname", a)
	}
	return strings.Join(w, " ")
}

func compare(a, b Difference) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Was, b.Was), cmp.Compare(a.Now, b.Now))
}
