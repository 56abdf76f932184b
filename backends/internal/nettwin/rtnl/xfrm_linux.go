package rtnl

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Messages and attributes of NETLINK_XFRM, which x/sys lacks.
const (
	xfrmGetSA       = 0x12
	xfrmGetPolicy   = 0x15
	xfrmFlushSA     = 0x1c
	xfrmFlushPolicy = 0x1d
	xfrmAlgorithms  = 1 // XFRMA_ALG_AUTH and the two after it: keys
	xfrmAEAD        = 18
	xfrmAuthTrunc   = 20
	xfrmTemplates   = 5
	xfrmMark        = 21
	xfrmInterface   = 31
)

// Sizes of struct xfrm_userpolicy_info and xfrm_usersa_info.
const (
	sizeofPolicy = 168
	sizeofSA     = 224
)

// DialXfrm opens a socket for IPsec in the namespace ns.
func DialXfrm(ns int) (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_XFRM, &netlink.Config{NetNS: ns})
	if err != nil {
		return nil, fmt.Errorf("dial xfrm netlink: %w", errno(err))
	}
	return &Conn{c}, nil
}

// Policies dumps the IPsec policies.
func (c *Conn) Policies() ([][]byte, error) { return c.Dump(xfrmGetPolicy, nil) }

// Associations dumps the security associations, keys and all.
func (c *Conn) Associations() ([][]byte, error) { return c.Dump(xfrmGetSA, nil) }

// FlushXfrm removes both.
func (c *Conn) FlushXfrm() error {
	const every = 255 // IPSEC_PROTO_ANY
	if err := c.Do(xfrmFlushPolicy, 0, nil); err != nil && err != unix.ESRCH {
		return fmt.Errorf("flush IPsec policies: %w", err)
	}
	if err := c.Do(xfrmFlushSA, 0, []byte{every, 0, 0, 0}); err != nil && err != unix.ESRCH {
		return fmt.Errorf("flush security associations: %w", err)
	}
	return nil
}

// PolicyKey splits a dumped policy into what it selects and what it does.
func PolicyKey(m []byte) (key, rest string) {
	if len(m) < sizeofPolicy {
		return "policy", hex.EncodeToString(m)
	}
	direction := []string{"in", "out", "fwd"}
	k, w := words{"policy"}, words{}
	if d := int(m[160]); d < len(direction) {
		k.add("dir", direction[d])
	}
	selector(&k, m)
	w.num("priority", binary.NativeEndian.Uint32(m[152:]))
	if m[161] != 0 {
		w.add("action block")
	}
	for a := range Attrs(m[sizeofPolicy:]) {
		switch a.Type {
		case xfrmTemplates:
			w.add("tmpl", hex.EncodeToString(a.Value))
		case xfrmMark, xfrmInterface:
			k.unknown(a)
		}
	}
	return k.String(), w.String()
}

// AssociationKey splits a dumped security association into its identity and the
// rest. Keys are left out: they are secrets, and lines are printed.
func AssociationKey(m []byte) (key, rest string) {
	if len(m) < sizeofSA {
		return "state", hex.EncodeToString(m)
	}
	size := 16
	if binary.NativeEndian.Uint16(m[212:]) == unix.AF_INET {
		size = 4
	}
	k, w := words{"state"}, words{}
	k.add("src", addr(m[80:80+size]), "dst", addr(m[56:56+size]))
	k.add("proto", fmt.Sprint(m[76]), "spi", fmt.Sprintf("%#x", binary.BigEndian.Uint32(m[72:])))
	w.num("reqid", binary.NativeEndian.Uint32(m[208:]))
	w.num("mode", uint32(m[214]))
	for a := range Attrs(m[sizeofSA:]) {
		switch {
		case a.Type >= xfrmAlgorithms && a.Type < xfrmAlgorithms+3, a.Type == xfrmAEAD, a.Type == xfrmAuthTrunc:
			w.add("alg", text(a.Value)) // struct xfrm_algo begins with its name, 64 bytes
		}
	}
	return k.String(), w.String()
}

// selector adds the words for a struct xfrm_selector.
func selector(w *words, m []byte) {
	size := 16
	if binary.NativeEndian.Uint16(m[40:]) == unix.AF_INET {
		size = 4
	}
	w.add("src", fmt.Sprintf("%s/%d", addr(m[16:16+size]), m[43]), "dst", fmt.Sprintf("%s/%d", addr(m[:size]), m[42]))
	if m[44] != 0 {
		w.add("proto", ipProtocol(m[44:45]))
	}
	if sport, dport := binary.BigEndian.Uint16(m[36:]), binary.BigEndian.Uint16(m[32:]); sport|dport != 0 {
		w.add("sport", fmt.Sprint(sport), "dport", fmt.Sprint(dport))
	}
}
