package nettwin

import (
	"encoding/binary"
	"encoding/hex"
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
	if l.Lower != 0 && l.Kind != "veth" { // of a pair it is the other end, which has a line of its own
		w = append(w, "link", n.name(l.Lower))
	}
	w = append(w, kindText(l)...)
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
	if l.Group != 0 {
		w = append(w, "group", fmt.Sprint(l.Group))
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

// kindText is what a link of some kinds is, beside its name: the number of a vlan,
// the table of a vrf. Options of the others are in numbers, but not those of a
// bridge or a bond, which have clocks among them, nor those of a tun, which is
// the twin's own make.
func kindText(l rtnl.Link) []string {
	number := func(typ uint16, size int) string {
		b := rtnl.Find(l.Options, typ)
		switch {
		case len(b) < size:
			return "?"
		case size == 2:
			return fmt.Sprint(binary.NativeEndian.Uint16(b))
		}
		return fmt.Sprint(binary.NativeEndian.Uint32(b))
	}
	switch l.Kind {
	case "", "veth", "tun", "bridge", "bond", "team":
		return nil
	case "vlan":
		return []string{"id", number(unix.IFLA_VLAN_ID, 2)}
	case "vxlan":
		return []string{"id", number(unix.IFLA_VXLAN_ID, 4), "options", hex.EncodeToString(l.Options)}
	case "vrf":
		return []string{"table", number(unix.IFLA_VRF_TABLE, 4)}
	}
	if len(l.Options) == 0 {
		return nil
	}
	return []string{"options", hex.EncodeToString(l.Options)}
}
