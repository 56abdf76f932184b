package rtnl

import (
	"encoding/binary"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// Link is what matters of one network interface.
type Link struct {
	Index    int
	Name     string
	Kind     string // "veth", "bridge", …; "" for hardware and loopback
	Type     uint16 // ARPHRD_*
	Flags    uint32 // IFF_*
	MAC      net.HardwareAddr
	MTU      uint32
	QueueLen uint32
	Group    uint32
	Master   int    // index, 0 when none
	Lower    int    // index of the link that it is on (vlan, macvlan, vxlan), 0 when none or elsewhere
	Options  []byte // of its kind, as they are dumped
	Carrier  bool
	Alias    string
	AltNames []string
	XDP      bool
}

// Up reports whether the link is administratively up.
func (l Link) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// Loopback reports whether it is the loopback interface.
func (l Link) Loopback() bool { return l.Flags&unix.IFF_LOOPBACK != 0 }

// Links dumps all links, by index.
func (c *Conn) Links() ([]Link, error) {
	ms, err := c.Dump(unix.RTM_GETLINK, make([]byte, unix.SizeofIfInfomsg))
	if err != nil {
		return nil, err
	}
	ls := make([]Link, 0, len(ms))
	for _, m := range ms {
		ls = append(ls, parseLink(m))
	}
	slices.SortFunc(ls, func(a, b Link) int { return a.Index - b.Index })
	return ls, nil
}

func parseLink(m []byte) Link {
	l := Link{
		Type:  binary.NativeEndian.Uint16(m[2:]),
		Index: int(binary.NativeEndian.Uint32(m[4:])),
		Flags: binary.NativeEndian.Uint32(m[8:]),
	}
	elsewhere := false // the lower link is in another namespace
	for a := range Attrs(m[unix.SizeofIfInfomsg:]) {
		switch a.Type {
		case unix.IFLA_IFNAME:
			l.Name = a.String()
		case unix.IFLA_ADDRESS:
			l.MAC = slices.Clone(a.Value)
		case unix.IFLA_MTU:
			l.MTU = a.Uint32()
		case unix.IFLA_TXQLEN:
			l.QueueLen = a.Uint32()
		case unix.IFLA_GROUP:
			l.Group = a.Uint32()
		case unix.IFLA_MASTER:
			l.Master = int(a.Uint32())
		case unix.IFLA_LINK:
			l.Lower = int(a.Uint32())
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_CARRIER:
			l.Carrier = len(a.Value) > 0 && a.Value[0] != 0
		case unix.IFLA_IFALIAS:
			l.Alias = a.String()
		case unix.IFLA_LINKINFO:
			l.Kind = text(Find(a.Value, unix.IFLA_INFO_KIND))
			l.Options = slices.Clone(Find(a.Value, unix.IFLA_INFO_DATA))
		case unix.IFLA_XDP:
			at := Find(a.Value, unix.IFLA_XDP_ATTACHED)
			l.XDP = len(at) > 0 && at[0] != 0
		case unix.IFLA_PROP_LIST:
			for p := range Attrs(a.Value) {
				if p.Type == unix.IFLA_ALT_IFNAME {
					l.AltNames = append(l.AltNames, p.String())
				}
			}
		}
	}
	if elsewhere || l.Lower == l.Index {
		l.Lower = 0
	}
	return l
}

// SetUp switches a link on or off.
func (c *Conn) SetUp(index int, up bool) error {
	m := infomsg(index)
	binary.NativeEndian.PutUint32(m[12:], unix.IFF_UP) // ifi_change
	if up {
		binary.NativeEndian.PutUint32(m[8:], unix.IFF_UP)
	}
	return c.Do(unix.RTM_NEWLINK, 0, m)
}

// settable are the flags that an administrator sets; the others are states, or
// come with the kind of link.
const settable = unix.IFF_NOARP | unix.IFF_MULTICAST | unix.IFF_ALLMULTI | unix.IFF_PROMISC

// Dress gives a link the MAC, MTU, names, flags and queue length of l, but leaves
// it down.
func (c *Conn) Dress(index int, l Link) error {
	m := infomsg(index)
	binary.NativeEndian.PutUint32(m[8:], l.Flags&settable)
	binary.NativeEndian.PutUint32(m[12:], settable) // ifi_change
	if len(l.MAC) == 6 {                            // Ethernet's: no TAP can have another
		m = Append(m, unix.IFLA_ADDRESS, l.MAC)
	}
	m = AppendUint32(m, unix.IFLA_MTU, l.MTU)
	m = AppendUint32(m, unix.IFLA_TXQLEN, l.QueueLen)
	m = AppendUint32(m, unix.IFLA_GROUP, l.Group)
	if l.Alias != "" {
		m = Append(m, unix.IFLA_IFALIAS, []byte(l.Alias))
	}
	if err := c.Do(unix.RTM_NEWLINK, 0, m); err != nil {
		return err
	}
	if len(l.AltNames) == 0 {
		return nil
	}
	var names []byte
	for _, n := range l.AltNames {
		names = AppendString(names, unix.IFLA_ALT_IFNAME, n)
	}
	m = Append(infomsg(index), unix.IFLA_PROP_LIST|unix.NLA_F_NESTED, names)
	return c.Do(unix.RTM_NEWLINKPROP, unix.NLM_F_CREATE|unix.NLM_F_EXCL, m)
}

// DeleteLink removes a link.
func (c *Conn) DeleteLink(index int) error { return c.Do(unix.RTM_DELLINK, 0, infomsg(index)) }

func infomsg(index int) []byte {
	m := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(m[4:], uint32(index))
	return m
}
