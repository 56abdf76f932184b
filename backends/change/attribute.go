package change

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// valueLimit is the length up to which the value of an attribute is shown whole
// in a command; wordLimit, in a sentence. The kernel allows 64 KiB.
const (
	valueLimit = 256
	wordLimit  = 80
)

// Attributes tells the extended attributes of an entry in words, sorted by name.
func Attributes(e *Entry) []string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(e.Xattrs)) {
		words = append(words, attributeTitle(name)+" "+attributeWord(name, e.Xattrs[name]))
	}
	return words
}

// attributeWords tells how the extended attributes of two entries differ.
func attributeWords(old, new *Entry) []string {
	names := map[string]bool{}
	for _, e := range []*Entry{old, new} {
		for name := range e.Xattrs {
			names[name] = true
		}
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		o, had := old.Xattrs[name]
		n, has := new.Xattrs[name]
		if had == has && bytes.Equal(o, n) {
			continue
		}
		before, after := "none", "none"
		if had {
			before = attributeWord(name, o)
		}
		if has {
			after = attributeWord(name, n)
		}
		words = append(words, fmt.Sprintf("%s %s -> %s", attributeTitle(name), before, after))
	}
	return words
}

func attributeTitle(name string) string {
	switch name {
	case accessACL:
		return "ACL"
	case defaultACL:
		return "default ACL"
	case capability:
		return "capabilities"
	}
	return "attribute " + Escape(name)
}

// attributeWord is a value for reading.
func attributeWord(name string, value []byte) string {
	if acl, ok := decodeACL(value); ok && name == accessACL {
		return shorten(aclText(extended(acl)), len(acl))
	} else if ok && name == defaultACL {
		return shorten(aclText(acl), len(acl))
	}
	if caps, ok := decodeCaps(value); ok && name == capability {
		if caps.namespaced {
			return fmt.Sprintf("%s (for the user namespaces of uid %d)", caps, caps.root)
		}
		return caps.String()
	}
	shown, rest := value[:min(len(value), wordLimit)], ""
	if len(value) > wordLimit {
		rest = fmt.Sprintf("… (%d bytes)", len(value))
	}
	switch {
	case holdsKey(value):
		return string(note(value))
	case readable(value):
		return `"` + Escape(string(shown)) + `"` + rest
	}
	return "0x" + hex.EncodeToString(shown) + rest
}

// shorten cuts a rendering of n entries.
func shorten(s string, n int) string {
	if len(s) <= 2*wordLimit {
		return s
	}
	return fmt.Sprintf("%s… (%d entries)", s[:strings.LastIndexByte(s[:wordLimit], ',')], n)
}

// readable reports text in which nothing would have to be escaped.
func readable(value []byte) bool { return !strings.ContainsFunc(string(value), unsafe) }

// attributeCommands gives an object the attributes of new. With old, it has
// those; the ACL that it is to lose is gone already. Capabilities come last,
// because most that is done to a file takes them away.
func attributeCommands(old, new *Entry, path string) []string {
	var had map[string][]byte
	if old != nil {
		had = old.Xattrs
	}
	var cmds, caps []string
	for _, name := range slices.Sorted(maps.Keys(new.Xattrs)) {
		value := new.Xattrs[name]
		o, ok := had[name]
		if ok && bytes.Equal(o, value) {
			continue
		}
		switch cmd := setAttribute(new, name, value, ok, path); name {
		case capability:
			caps = append(caps, cmd)
		default:
			cmds = append(cmds, cmd)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(had)) {
		if _, ok := new.Xattrs[name]; ok || name == accessACL || name == defaultACL {
			continue
		}
		if name == capability {
			caps = append(caps, "setcap -r "+path)
			continue
		}
		cmds = append(cmds, fmt.Sprintf("setfattr %s-x %s %s", noFollow(new), Quote(name), path))
	}
	return append(cmds, caps...)
}

// setAttribute is the command that sets one attribute, by the tool that knows it.
func setAttribute(e *Entry, name string, value []byte, had bool, path string) string {
	acl, isACL := decodeACL(value)
	caps, isCaps := decodeCaps(value)
	switch {
	case isACL && name == accessACL:
		return setACL("", acl, had, path)
	case isACL && name == defaultACL:
		return setACL("-d ", acl, had, path)
	case isCaps && name == capability:
		return capCommand(caps, path)
	case len(value) == 0:
		return fmt.Sprintf("setfattr %s-n %s %s", noFollow(e), Quote(name), path)
	case len(value) > valueLimit || holdsKey(value):
		sum := sha256.Sum256(value)
		return fmt.Sprintf("setfattr %s--restore=- # %s of %s, %d bytes, sha256 %x", noFollow(e), Quote(name), path, len(value), sum[:6])
	}
	shown := "0x" + hex.EncodeToString(value)
	if plainText(value) {
		shown = Quote(string(value))
	}
	return fmt.Sprintf("setfattr %s-n %s -v %s %s", noFollow(e), Quote(name), shown, path)
}

// setACL sets an ACL. One that stands there is replaced whole, since an entry
// that is not named would stay.
func setACL(flag string, acl []ace, had bool, path string) string {
	how, what := "--set", aclText(acl)
	if !had {
		how = "-m"
		if flag == "" {
			what = aclText(extended(acl))
		}
	}
	if len(what) > valueLimit {
		return fmt.Sprintf("setfacl %s--set-file=- %s # %d entries", flag, path, len(acl))
	}
	return fmt.Sprintf("setfacl %s%s %s %s", flag, how, what, path)
}

// dropACLs takes away the ACLs that new has no more. setfacl -b takes both, and
// leaves the group with what it had under the mask: then the mode is set again.
func dropACLs(old, new *Entry, path string) (cmds []string, chmod bool) {
	gone := func(name string) bool {
		_, had := old.Xattrs[name]
		_, has := new.Xattrs[name]
		return had && !has
	}
	_, keeps := new.Xattrs[defaultACL]
	switch {
	case gone(accessACL) && keeps:
		cmds = append(cmds, fmt.Sprintf("setfacl --set %s %s", aclText(minimal(new.Mode)), path))
	case gone(accessACL):
		acl, _ := decodeACL(old.Xattrs[accessACL])
		group, ok := groupPerm(acl)
		return []string{"setfacl -b " + path}, !ok || uint32(group) != new.Mode>>3&7
	case gone(defaultACL):
		cmds = append(cmds, "setfacl -k "+path)
	}
	return cmds, false
}

// without is a copy of attributes that lacks one.
func without(all map[string][]byte, name string) map[string][]byte {
	rest := maps.Clone(all)
	delete(rest, name)
	return rest
}

func noFollow(e *Entry) string {
	if e.Type == Symlink {
		return "-h "
	}
	return ""
}

// plainText reports a value that setfattr(1) takes as it is written: it reads
// quotes, backslashes and the prefixes of its encodings as something else.
func plainText(value []byte) bool {
	s := string(value)
	for _, prefix := range []string{"0x", "0X", "0s", "0S"} {
		if strings.HasPrefix(s, prefix) {
			return false
		}
	}
	return readable(value) && !strings.Contains(s, `"`)
}

// holdsKey reports a value that holds a private key.
func holdsKey(value []byte) bool { return !bytes.Equal(MaskKeys(value), value) }
