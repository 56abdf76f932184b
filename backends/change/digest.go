package change

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"slices"
	"strings"
)

// Sort orders changes canonically, by kind and then path bytes. A path occurs
// once, so the order is total.
func Sort(cs []Change) {
	slices.SortFunc(cs, func(a, b Change) int {
		if c := strings.Compare(string(a.Kind), string(b.Kind)); c != 0 {
			return c
		}
		return strings.Compare(string(a.Path), string(b.Path))
	})
}

// Digest returns the canonical digest of a change list, "sha256:" and 64 hex
// digits. It does not depend on the order of cs, on times or on inode numbers.
// Every field is length-prefixed, so no two different lists share an encoding.
func Digest(cs []Change) string {
	sorted := slices.Clone(cs)
	Sort(sorted)
	h := sha256.New()
	text(h, "netsandbox/changes/v2")
	number(h, uint64(len(sorted)))
	for _, c := range sorted {
		text(h, string(c.Kind))
		text(h, string(c.Op))
		text(h, string(c.Path))
		c.Old.digest(h)
		c.New.digest(h)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func (e *Entry) digest(h hash.Hash) {
	if e == nil {
		text(h, "absent")
		return
	}
	text(h, string(e.Type))
	number(h, uint64(e.Mode))
	number(h, uint64(e.UID))
	number(h, uint64(e.GID))
	text(h, e.SHA256)
	text(h, string(e.Target))
	number(h, uint64(len(e.Xattrs)))
	for _, name := range slices.Sorted(maps.Keys(e.Xattrs)) {
		text(h, name)
		text(h, string(e.Xattrs[name]))
	}
	text(h, string(e.Link))
}

func text(h hash.Hash, s string) {
	number(h, uint64(len(s)))
	h.Write([]byte(s))
}

func number(h hash.Hash, n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	h.Write(b[:])
}
