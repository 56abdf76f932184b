package xattr

import (
	"bytes"
	"encoding/binary"
)

// Forms of security.capability in linux/capability.h: a little-endian word of
// magic, then permitted and inheritable sets; version 3 ends with the id of the
// user namespace's root for which it holds.
const (
	capRevision2 = 0x02000000
	capRevision3 = 0x03000000
	capRevisions = 0xFF000000
	capSize2     = 20
	capSize3     = 24
)

// Canonical returns the one form in which a plan carries an attribute's value.
//
// A capability set in a user namespace is stored in version 3 with the id of
// that namespace's root; the idmapped layers of a view make it 0. On the host
// that means exactly what version 2 means, so it becomes version 2. With any
// other root it stays as it is: it holds in somebody's namespace only.
func Canonical(name string, value []byte) []byte {
	if name != Capability || len(value) != capSize3 {
		return value
	}
	magic := binary.LittleEndian.Uint32(value)
	if magic&capRevisions != capRevision3 || binary.LittleEndian.Uint32(value[capSize2:]) != 0 {
		return value
	}
	v := bytes.Clone(value[:capSize2])
	binary.LittleEndian.PutUint32(v, magic&^capRevisions|capRevision2)
	return v
}
