package change

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Names under which the kernel keeps the access ACL of an object, and the one
// that new entries of a directory inherit. acl(5).
const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
)

// Tags of entries, from linux/posix_acl.h.
const (
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20
)

// The form in linux/posix_acl_xattr.h: a little-endian version, then entries of
// tag, permissions and id.
const (
	aclVersion = 2
	aclHead    = 4
	aclEntry   = 8
)

// ace is one entry of an ACL.
type ace struct {
	tag, perm uint16
	id        uint32
}

// decodeACL reads an ACL in the kernel's form; false where it is none.
func decodeACL(value []byte) ([]ace, bool) {
	if len(value) <= aclHead || (len(value)-aclHead)%aclEntry != 0 || binary.LittleEndian.Uint32(value) != aclVersion {
		return nil, false
	}
	var acl []ace
	for b := value[aclHead:]; len(b) > 0; b = b[aclEntry:] {
		e := ace{binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint32(b[4:])}
		if aclPrefix(e) == "" || e.perm > 7 {
			return nil, false
		}
		acl = append(acl, e)
	}
	return acl, true
}

// aclPrefix is an entry without its permissions, in the short form of setfacl(1);
// empty for a tag that does not exist.
func aclPrefix(e ace) string {
	switch e.tag {
	case aclUserObj:
		return "u::"
	case aclUser:
		return fmt.Sprintf("u:%d:", e.id)
	case aclGroupObj:
		return "g::"
	case aclGroup:
		return fmt.Sprintf("g:%d:", e.id)
	case aclMask:
		return "m::"
	case aclOther:
		return "o::"
	}
	return ""
}

// aclText renders entries as setfacl(1) takes them.
func aclText(acl []ace) string {
	parts := make([]string, len(acl))
	for i, e := range acl {
		parts[i] = aclPrefix(e) + rwx(e.perm)
	}
	return strings.Join(parts, ",")
}

func rwx(perm uint16) string {
	b := []byte("rwx")
	for i := range b {
		if perm&(4>>i) == 0 {
			b[i] = '-'
		}
	}
	return string(b)
}

// extended leaves out what the mode of the object says already: owner and other.
// The group's own permissions stay, because with a mask the mode shows the mask
// in their place.
func extended(acl []ace) []ace {
	var kept []ace
	for _, e := range acl {
		if e.tag != aclUserObj && e.tag != aclOther {
			kept = append(kept, e)
		}
	}
	return kept
}

// minimal is the ACL that says no more than a mode.
func minimal(mode uint32) []ace {
	return []ace{
		{tag: aclUserObj, perm: uint16(mode >> 6 & 7)},
		{tag: aclGroupObj, perm: uint16(mode >> 3 & 7)},
		{tag: aclOther, perm: uint16(mode & 7)},
	}
}

// groupPerm is what becomes of the group's bits of a mode when setfacl -b takes
// the mask away.
func groupPerm(acl []ace) (uint16, bool) {
	for _, e := range acl {
		if e.tag == aclGroupObj {
			return e.perm, true
		}
	}
	return 0, false
}
