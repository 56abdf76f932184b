package nstest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawDump is one rtnetlink dump, printed attribute by attribute: what no library
// models (encapsulations, nexthop ids, preferences) is in it too.
type rawDump struct {
	name   string
	get    int
	header int // bytes of the fixed header
	// volatile attributes change on an untouched machine: lifetimes, counters.
	volatile map[uint16]bool
	// addresses are printed readably.
	addresses map[uint16]string
}

var rawDumps = []rawDump{
	{
		"address", unix.RTM_GETADDR, unix.SizeofIfAddrmsg, set(unix.IFA_CACHEINFO),
		map[uint16]string{unix.IFA_ADDRESS: "addr", unix.IFA_LOCAL: "local", unix.IFA_BROADCAST: "brd"},
	},
	{
		"route", unix.RTM_GETROUTE, unix.SizeofRtMsg, set(unix.RTA_CACHEINFO, unix.RTA_EXPIRES),
		map[uint16]string{unix.RTA_DST: "dst", unix.RTA_SRC: "src", unix.RTA_GATEWAY: "via", unix.RTA_PREFSRC: "prefsrc"},
	},
	{
		"rule", unix.RTM_GETRULE, unix.SizeofRtMsg, nil,
		map[uint16]string{unix.FRA_DST: "to", unix.FRA_SRC: "from"},
	},
}

func set(ns ...uint16) map[uint16]bool {
	m := map[uint16]bool{}
	for _, n := range ns {
		m[n] = true
	}
	return m
}

func dumpRaw() ([]string, error) {
	var lines []string
	for _, d := range rawDumps {
		// The socket is made on the calling thread, so the dump is of its namespace.
		rib, err := syscall.NetlinkRIB(d.get, unix.AF_UNSPEC)
		if err != nil {
			return nil, fmt.Errorf("dump %s: %w", d.name, err)
		}
		msgs, err := syscall.ParseNetlinkMessage(rib)
		if err != nil {
			return nil, fmt.Errorf("dump %s: %w", d.name, err)
		}
		for _, m := range msgs {
			if m.Header.Type != unix.NLMSG_DONE && len(m.Data) >= d.header && !cloned(d, m.Data) {
				lines = append(lines, d.line(m.Data))
			}
		}
	}
	return lines, nil
}

// cloned reports a cached route, which comes and goes with traffic.
func cloned(d rawDump, data []byte) bool {
	return d.get == unix.RTM_GETROUTE && binary.NativeEndian.Uint32(data[8:])&unix.RTM_F_CLONED != 0
}

func (d rawDump) line(data []byte) string {
	var attrs []string
	for rest := data[d.header:]; len(rest) >= unix.SizeofNlAttr; {
		n := int(binary.NativeEndian.Uint16(rest))
		kind := binary.NativeEndian.Uint16(rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if n < unix.SizeofNlAttr || n > len(rest) {
			break
		}
		attrs = append(attrs, d.attr(kind, rest[unix.SizeofNlAttr:n])...)
		rest = rest[min((n+3)&^3, len(rest)):]
	}
	sort.Strings(attrs)
	head := data[:d.header]
	if d.get == unix.RTM_GETROUTE {
		// Dead and link-down flags of a nexthop follow the carrier, not a change.
		head = append([]byte{}, head...)
		binary.NativeEndian.PutUint32(head[8:], binary.NativeEndian.Uint32(head[8:])&^uint32(unix.RTNH_F_DEAD|unix.RTNH_F_LINKDOWN))
	}
	return fmt.Sprintf("%s %x %s", d.name, head, strings.Join(attrs, " "))
}

func (d rawDump) attr(kind uint16, value []byte) []string {
	if d.volatile[kind] {
		return nil
	}
	if word, ok := d.addresses[kind]; ok {
		if a, ok := netip.AddrFromSlice(value); ok {
			return []string{word + "=" + a.String()}
		}
	}
	return []string{fmt.Sprintf("%d=%x", kind, value)}
}
