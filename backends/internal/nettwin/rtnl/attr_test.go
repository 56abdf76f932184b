package rtnl

import (
	"bytes"
	"testing"
)

func TestFilterRewritesItsOwnCopy(t *testing.T) {
	msg := make([]byte, 12)
	msg = AppendUint32(msg, 1, 7)
	msg = AppendString(msg, 2, "odd")
	msg = Append(msg, 3|0x8000, []byte{1, 2, 3, 4, 5}) // nested, and padded
	was := bytes.Clone(msg)
	got := filter(msg, 12, func(a Attr) bool {
		if a.Type == 1 {
			a.Value[0] = 9
		}
		return a.Type != 2
	})
	if !bytes.Equal(msg, was) {
		t.Error("the message itself was changed")
	}
	if n := number(Find(got[12:], 1)); n != 9 {
		t.Errorf("attribute 1 is %d, want 9", n)
	}
	if Find(got[12:], 2) != nil || !bytes.Equal(Find(got[12:], 3), []byte{1, 2, 3, 4, 5}) {
		t.Errorf("got % x", got)
	}
}

// FuzzAttrs walks bytes of any kind: it must end, within them.
func FuzzAttrs(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 0, 1, 0})
	f.Add([]byte{8, 0, 1, 0, 1, 2, 3, 4, 5, 0, 2, 0, 9})
	f.Add([]byte{255, 255, 1, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for a := range Attrs(b) {
			n += len(a.raw)
			_, _ = a.Uint32(), a.String()
		}
		if n > len(b) {
			t.Errorf("%d bytes of attributes in %d", n, len(b))
		}
		if got := filter(b, 0, func(Attr) bool { return true }); len(got) > len(b) {
			t.Errorf("a copy of %d bytes has %d", len(b), len(got))
		}
	})
}
