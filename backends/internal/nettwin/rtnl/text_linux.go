package rtnl

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// Names gives the name of an interface by its number.
type Names func(index int) string

// words builds a command line.
type words []string

func (w *words) add(ws ...string)          { *w = append(*w, ws...) }
func (w *words) num(name string, v uint32) { w.add(name, fmt.Sprint(v)) }
func (w words) String() string             { return strings.Join(w, " ") }

// unknown keeps what this package has no word for in sight and in every
// comparison.
func (w *words) unknown(a Attr) { w.add(fmt.Sprintf("attr%d", a.Type), hex.EncodeToString(a.Value)) }

// addr renders an address of 4 or 16 bytes.
func addr(b []byte) string {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return hex.EncodeToString(b)
	}
	return a.String()
}

func prefix(b []byte, bits uint8) string {
	if len(b) == 0 {
		return "default"
	}
	if int(bits) == 8*len(b) {
		return addr(b)
	}
	return fmt.Sprintf("%s/%d", addr(b), bits)
}

// AddressText renders a dumped address: "192.0.2.2/24 dev eth0 …".
func AddressText(m []byte, name Names) string {
	key, rest := AddressKey(m, name)
	return strings.TrimSpace(key + " " + rest)
}

// AddressKey splits it into identity and attributes.
func AddressKey(m []byte, name Names) (key, rest string) {
	flags := uint32(m[2])
	dev := name(int(binary.NativeEndian.Uint32(m[4:])))
	var local, peer string
	var w words
	for a := range Attrs(m[unix.SizeofIfAddrmsg:]) {
		switch a.Type {
		case unix.IFA_LOCAL:
			local = addr(a.Value)
		case unix.IFA_ADDRESS:
			peer = addr(a.Value)
		case unix.IFA_BROADCAST:
			w.add("broadcast", addr(a.Value))
		case unix.IFA_LABEL:
			if a.String() != dev {
				w.add("label", a.String())
			}
		case unix.IFA_FLAGS:
			flags = a.Uint32()
		case unix.IFA_RT_PRIORITY:
			w.num("metric", a.Uint32())
		}
	}
	if flags&unix.IFA_F_NOPREFIXROUTE != 0 {
		w.add("noprefixroute")
	}
	if m[3] != unix.RT_SCOPE_UNIVERSE {
		w.add("scope", scope(m[3]))
	}
	if local == "" || local == peer {
		local = peer
	} else {
		local += " peer " + peer
	}
	return fmt.Sprintf("%s/%d dev %s", local, m[1], dev), w.String()
}

func scope(s uint8) string {
	switch s {
	case unix.RT_SCOPE_UNIVERSE:
		return "global"
	case unix.RT_SCOPE_LINK:
		return "link"
	case unix.RT_SCOPE_HOST:
		return "host"
	case unix.RT_SCOPE_NOWHERE:
		return "nowhere"
	case unix.RT_SCOPE_SITE:
		return "site"
	}
	return fmt.Sprint(s)
}

func table(t uint32) string {
	switch t {
	case unix.RT_TABLE_MAIN:
		return "main"
	case unix.RT_TABLE_LOCAL:
		return "local"
	case unix.RT_TABLE_DEFAULT:
		return "default"
	}
	return fmt.Sprint(t)
}

func protocol(p uint8) string {
	switch p {
	case unix.RTPROT_KERNEL:
		return "kernel"
	case unix.RTPROT_BOOT:
		return "boot"
	case unix.RTPROT_STATIC:
		return "static"
	case unix.RTPROT_RA:
		return "ra"
	case unix.RTPROT_DHCP:
		return "dhcp"
	}
	return fmt.Sprint(p)
}

func via(a Attr) string { // struct rtvia: family, address
	if len(a.Value) < 2 {
		return hex.EncodeToString(a.Value)
	}
	if binary.NativeEndian.Uint16(a.Value) == unix.AF_INET6 {
		return "inet6 " + addr(a.Value[2:])
	}
	return addr(a.Value[2:])
}

func mac(b []byte) string { return net.HardwareAddr(b).String() }
