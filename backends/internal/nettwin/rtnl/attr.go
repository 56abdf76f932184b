package rtnl

import (
	"encoding/binary"
	"iter"
)

// Attr is one attribute of a message. Value aliases the message.
type Attr struct {
	Type  uint16 // without the nested and byte-order flags
	Value []byte
	raw   []byte // header, value and padding
}

const (
	attrHeader   = 4
	attrTypeMask = 0x3fff // NLA_F_NESTED and NLA_F_NET_BYTEORDER are the top bits
)

// Attrs walks the attributes in b. A malformed tail ends the walk: the kernel
// is the only author of these bytes.
func Attrs(b []byte) iter.Seq[Attr] {
	return func(yield func(Attr) bool) {
		for len(b) >= attrHeader {
			n := int(binary.NativeEndian.Uint16(b))
			if n < attrHeader || n > len(b) {
				return
			}
			end := min(align(n), len(b))
			a := Attr{binary.NativeEndian.Uint16(b[2:]) & attrTypeMask, b[attrHeader:n], b[:end]}
			if !yield(a) {
				return
			}
			b = b[end:]
		}
	}
}

// Find returns the value of the first attribute of a type, or nil.
func Find(b []byte, typ uint16) []byte {
	for a := range Attrs(b) {
		if a.Type == typ {
			return a.Value
		}
	}
	return nil
}

// Uint32 reads a native number; 0 when the value is too short.
func (a Attr) Uint32() uint32 { return number(a.Value) }

// String reads a NUL-terminated string.
func (a Attr) String() string { return text(a.Value) }

// Append adds an attribute to a message.
func Append(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, align(len(value))-len(value))...)
}

// AppendUint32 adds a number.
func AppendUint32(b []byte, typ uint16, v uint32) []byte {
	return Append(b, typ, binary.NativeEndian.AppendUint32(nil, v))
}

// AppendString adds a NUL-terminated string.
func AppendString(b []byte, typ uint16, s string) []byte {
	return Append(b, typ, append([]byte(s), 0))
}

// filter copies a message of the given header size with the attributes that
// keep accepts. keep may change a value in place: the copy is the caller's.
func filter(msg []byte, header int, keep func(Attr) bool) []byte {
	out := append(make([]byte, 0, len(msg)), msg[:header]...)
	for a := range Attrs(msg[header:]) {
		n := len(out)
		out = append(out, a.raw...)
		a.Value = out[n+attrHeader : n+attrHeader+len(a.Value)]
		if !keep(a) {
			out = out[:n]
		}
	}
	return out
}

func align(n int) int { return (n + 3) &^ 3 }

func number(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
