package holder

import (
	"bytes"
	"encoding/binary"

	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// Tags of an access control list that have an id of their own, and the size of
// its head and of one entry; linux/posix_acl_xattr.h.
const (
	aclUser, aclGroup  = 0x02, 0x08
	aclHead, aclEntry  = 4, 8
	capSize2, capSize3 = 20, 24
	capRevision        = 0xFF000000
	capRevision3       = 0x03000000
)

// shifted returns an attribute of the host as the merged mount takes it: like
// owners, the ids in an access control list are those of the view's user
// namespace, and a capability that holds for the host's root holds for the view's.
func (s staging) shifted(name string, value []byte) []byte {
	if s.shift == 0 {
		return value
	}
	shift := func(b []byte) {
		binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)+uint32(s.shift))
	}
	v := bytes.Clone(value)
	switch {
	case name == xattr.ACL || name == xattr.DefaultACL:
		for at := aclHead; at+aclEntry <= len(v); at += aclEntry {
			if tag := binary.LittleEndian.Uint16(v[at:]); tag == aclUser || tag == aclGroup {
				shift(v[at+4:])
			}
		}
	case name == xattr.Capability && len(v) == capSize2:
		v = append(v, 0, 0, 0, 0)
		magic := binary.LittleEndian.Uint32(v)
		binary.LittleEndian.PutUint32(v, magic&^capRevision|capRevision3)
		shift(v[capSize2:])
	case name == xattr.Capability && len(v) == capSize3:
		shift(v[capSize2:])
	}
	return v
}
