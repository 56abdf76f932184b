package rtnl

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// sizeofLabelmsg is the size of struct ifaddrlblmsg, which x/sys lacks.
const sizeofLabelmsg = 12

// Attributes of an address label (IFAL_*), which x/sys lacks.
const (
	labelAddress = 1
	labelValue   = 2
)

// Label turns a dumped label of source address selection (RFC 6724) into a request
// that adds or deletes it.
func Label(msg []byte, m IndexMap) ([]byte, bool) {
	out := filter(msg, sizeofLabelmsg, func(Attr) bool { return true })
	clear(out[8:12]) // counts the changes of the table
	if number(out[4:]) == 0 {
		return out, true
	}
	return out, m.rewrite(out[4:])
}

// LabelKey splits it into prefix and link, and the label.
func LabelKey(m []byte, name Names) (key, rest string) {
	var w words
	w.add("prefix", fmt.Sprintf("%s/%d", addr(Find(m[sizeofLabelmsg:], labelAddress)), m[2]))
	if i := int(number(m[4:])); i != 0 {
		w.add("dev", name(i))
	}
	return w.String(), fmt.Sprintf("label %d", number(Find(m[sizeofLabelmsg:], labelValue)))
}

// Labels is the request for a dump of all.
func Labels() (typ uint16, header []byte) {
	header = make([]byte, sizeofLabelmsg)
	header[0] = unix.AF_INET6
	return unix.RTM_GETADDRLABEL, header
}
