package rtnl

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Messages that the kernel which runs the tests may have no way to make.

func names(index int) string { return map[int]string{2: "eth0", 3: "wg0"}[index] }

// route forges a dumped IPv4 route to 10.0.0.0/8 in table main.
func route(attrs ...[]byte) []byte {
	m := []byte{unix.AF_INET, 8, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	m = Append(m, unix.RTA_DST, []byte{10, 0, 0, 0})
	return append(m, slices.Concat(attrs...)...)
}

func attr(typ uint16, v []byte) []byte   { return Append(nil, typ, v) }
func attr32(typ uint16, v uint32) []byte { return AppendUint32(nil, typ, v) }
func attr16(typ uint16, v uint16) []byte { return attr(typ, binary.NativeEndian.AppendUint16(nil, v)) }

func hop(index uint32, attrs []byte) []byte { // struct rtnexthop
	b := binary.NativeEndian.AppendUint16(nil, uint16(8+len(attrs)))
	b = append(b, 0, 1)
	return append(binary.NativeEndian.AppendUint32(b, index), attrs...)
}

func TestForgedRoutes(t *testing.T) {
	for _, c := range []struct {
		name string
		msg  []byte
		want string
	}{
		{
			"an mpls label", route(attr(unix.RTA_ENCAP, []byte{8, 0, 1, 0, 0, 6, 65, 0}), attr16(unix.RTA_ENCAP_TYPE, 1), attr32(unix.RTA_OIF, 2)),
			"10.0.0.0/8 table main encap-options 0800010000064100 encap mpls dev eth0 proto static",
		},
		{
			"a gateway of the other family", route(attr(unix.RTA_VIA, append([]byte{unix.AF_INET6, 0}, netip.MustParseAddr("fe80::1").AsSlice()...)), attr32(unix.RTA_OIF, 3)),
			"10.0.0.0/8 table main via inet6 fe80::1 dev wg0 proto static",
		},
		{
			"locked metrics", route(attr(unix.RTA_METRICS, slices.Concat(attr32(unix.RTAX_LOCK, 1<<unix.RTAX_MTU), attr32(unix.RTAX_MTU, 1300), attr32(unix.RTAX_ADVMSS, 1260)))),
			"10.0.0.0/8 table main mtu lock 1300 advmss 1260 proto static",
		},
		{
			"two next hops", route(attr(unix.RTA_MULTIPATH, slices.Concat(hop(2, attr(unix.RTA_GATEWAY, []byte{192, 0, 2, 1})), hop(3, nil)))),
			"10.0.0.0/8 table main nexthop via 192.0.2.1 dev eth0 weight 2 nexthop dev wg0 weight 2 proto static",
		},
		{"an attribute of the future", route(attr(77, []byte{1, 2})), "10.0.0.0/8 table main attr77 0102 proto static"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := RouteText(c.msg, names); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			out, ok := Route(c.msg, IndexMap{2: 2, 3: 3})
			if !ok || !bytes.Equal(out, c.msg) {
				t.Errorf("told again: %x, %t; want %x", out, ok, c.msg)
			}
		})
	}
}

func TestGatewaysOfARoute(t *testing.T) {
	m := route(attr(unix.RTA_MULTIPATH, slices.Concat(
		hop(2, attr(unix.RTA_GATEWAY, []byte{192, 0, 2, 1})), hop(3, nil),
		hop(2, attr(unix.RTA_VIA, append([]byte{unix.AF_INET6, 0}, netip.MustParseAddr("fe80::1").AsSlice()...))))))
	want := []Gateway{{2, netip.MustParseAddr("192.0.2.1")}, {2, netip.MustParseAddr("fe80::1")}}
	if got := Gateways(m); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := RouteText(want[1].Link(), names); got != "inet6 fe80::1 table main dev eth0 proto boot scope link" {
		t.Errorf("link route %s", got)
	}
}

func TestLifetimeOfARoute(t *testing.T) {
	info := make([]byte, 32)
	binary.NativeEndian.PutUint32(info[8:], 250) // hundredths of a second
	m := route(attr(unix.RTA_CACHEINFO, info))
	if left, ok := Expires(m); left != 2500*time.Millisecond || !ok {
		t.Errorf("left %v, %t", left, ok)
	}
	out, _ := Route(m, IndexMap{})
	if n := number(Find(out[unix.SizeofRtMsg:], unix.RTA_EXPIRES)); n != 3 {
		t.Errorf("told again with %d s, want 3", n)
	}
	m[5] = unix.RTPROT_RA
	if out, _ := Route(m, IndexMap{}); Find(out[unix.SizeofRtMsg:], unix.RTA_EXPIRES) != nil {
		t.Error("what a router advertises runs out in the twin")
	}
	if _, ok := Expires(route()); ok {
		t.Error("a route without a lifetime ends")
	}
}

func TestUsersOfARule(t *testing.T) {
	rule := func(first, last uint32) []byte {
		m := make([]byte, SizeofRuleHdr)
		m[0], m[7] = unix.AF_INET, ruleToTable
		return Append(m, unix.FRA_UID_RANGE, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, first), last))
	}
	const base, size = 1 << 31, 1<<31 - 1
	view := Shift{base, size}
	for _, c := range []struct {
		name        string
		host        [2]uint32
		in          [2]uint32
		ok          bool
		dumped, out [2]uint32
	}{
		{"some", [2]uint32{1000, 1001}, [2]uint32{1000, 1001}, true, [2]uint32{base + 1000, base + 1001}, [2]uint32{1000, 1001}},
		{"all", [2]uint32{0, 1<<32 - 2}, [2]uint32{0, size - 1}, true, [2]uint32{base, base + size - 1}, [2]uint32{0, size - 1}},
		{"none inside", [2]uint32{base, base + 1}, [2]uint32{}, false, [2]uint32{7, 8}, [2]uint32{7, 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := view.In(rule(c.host[0], c.host[1]))
			if ok != c.ok || ok && !bytes.Equal(got, rule(c.in[0], c.in[1])) {
				t.Errorf("in: %s, %t", RuleText(got), ok)
			}
			if got := view.Out(rule(c.dumped[0], c.dumped[1])); !bytes.Equal(got, rule(c.out[0], c.out[1])) {
				t.Errorf("out: %s", RuleText(got))
			}
		})
	}
	if got, ok := (Shift{}).In(rule(5, 6)); !ok || !bytes.Equal(got, rule(5, 6)) {
		t.Error("a rule of the same user namespace was changed")
	}
	if Find(RuleDeletion(rule(5, 6))[SizeofRuleHdr:], unix.FRA_UID_RANGE) != nil {
		t.Error("a deletion names users")
	}
}

// TestAssociationHidesKeys forges what a kernel without ESP cannot hold.
func TestAssociationHidesKeys(t *testing.T) {
	m := make([]byte, sizeofSA)
	copy(m[56:], []byte{192, 0, 2, 1})
	binary.BigEndian.PutUint32(m[72:], 0x1234)
	m[76] = unix.IPPROTO_ESP
	copy(m[80:], []byte{192, 0, 2, 2})
	binary.NativeEndian.PutUint32(m[208:], 9)
	binary.NativeEndian.PutUint16(m[212:], unix.AF_INET)
	m[214] = 1
	algo := make([]byte, 68+3)
	copy(algo, "cbc(aes)")
	copy(algo[68:], "key")
	m = Append(m, 2, algo) // XFRMA_ALG_CRYPT
	key, rest := AssociationKey(m)
	if key != "state src 192.0.2.2 dst 192.0.2.1 proto 50 spi 0x1234" || rest != "reqid 9 mode 1 alg cbc(aes)" {
		t.Errorf("got %s, %s", key, rest)
	}
}

// FuzzTexts renders bytes of any kind: it must end, within them.
func FuzzTexts(f *testing.F) {
	f.Add(route(attr(unix.RTA_MULTIPATH, hop(2, nil))))
	f.Add(make([]byte, sizeofPolicy))
	f.Add(make([]byte, sizeofSA))
	f.Fuzz(func(t *testing.T, b []byte) {
		head := append(slices.Clone(b), make([]byte, 32)...) // the caller looks at the size of the header
		RouteText(head, names)
		RuleText(head)
		NexthopText(head, names)
		NeighborText(head, names)
		AddressText(head, names)
		LabelKey(head, names)
		QdiscKey(head, names)
		PolicyKey(b)
		AssociationKey(b)
		Gateways(head)
		NexthopGateways(head)
		parseLink(head)
		if out, _ := Route(head, IndexMap{}); len(out) > len(head)+8 {
			t.Errorf("a route of %d bytes is told again in %d", len(head), len(out))
		}
		Nexthop(head, IndexMap{})
		Shift{1, 2}.Out(head)
	})
}
