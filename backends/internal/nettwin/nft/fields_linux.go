package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"
)

// hookName is where a base chain is called from. The numbers mean other places in
// other families.
func hookName(family byte, n uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	switch family {
	case unix.NFPROTO_ARP:
		names = []string{"input", "output"}
	case unix.NFPROTO_NETDEV:
		names = []string{"ingress", "egress"}
	}
	return word(names, n)
}

// field is a piece of a packet that a rule loads.
type field struct{ base, offset, size uint32 }

const network, transport = unix.NFT_PAYLOAD_NETWORK_HEADER, unix.NFT_PAYLOAD_TRANSPORT_HEADER

// fields are those that nft(8) has short names for. Less than all of an address, as a
// prefix loads it, stays raw.
var fields = map[field]string{
	{network, 12, 4}:  "ip saddr",
	{network, 16, 4}:  "ip daddr",
	{network, 8, 16}:  "ip6 saddr",
	{network, 24, 16}: "ip6 daddr",
	{transport, 0, 2}: "sport",
	{transport, 2, 2}: "dport",
}

// fieldName names what is loaded where the family leaves no doubt about the header.
func fieldName(family byte, f field) string {
	switch family {
	case unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6:
		if name := fields[f]; name != "" {
			return name
		}
	}
	return fmt.Sprintf("@%s,%d,%d", word(payloadBase, f.base), f.offset, f.size)
}

var (
	protocols = map[byte]string{
		unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMPV6: "ipv6-icmp", unix.IPPROTO_SCTP: "sctp",
	}
	families = map[byte]string{unix.NFPROTO_IPV4: "ipv4", unix.NFPROTO_IPV6: "ipv6"}
)

// fieldValue renders what a field is compared with.
func fieldValue(of string, b []byte) string {
	if len(b) == 1 {
		if name := map[string]map[byte]string{"l4proto": protocols, "nfproto": families}[of][b[0]]; name != "" {
			return name
		}
	}
	if len(b) == 4 {
		switch n := binary.NativeEndian.Uint32(b); of {
		case "skuid", "skgid":
			return fmt.Sprint(n)
		case "mark":
			return fmt.Sprintf("%#x", n)
		}
	}
	if a, ok := netip.AddrFromSlice(b); ok && strings.HasSuffix(of, "addr") {
		return a.String()
	}
	return valueText(b)
}
