package hostfiles

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// describe says in one clause what an entry is.
func describe(e *change.Entry) string {
	switch {
	case e == nil:
		return "nothing"
	case e.Type == change.Symlink:
		return "symlink to " + e.Target.String()
	case e.Type == change.Regular:
		return fmt.Sprintf("file of %d bytes, mode %04o, owner %d:%d, sha256 %.12s", e.Size, e.Mode, e.UID, e.GID, e.SHA256)
	}
	return fmt.Sprintf("%s, mode %04o, owner %d:%d", e.Type, e.Mode, e.UID, e.GID)
}

// unlike says what is there instead of what was expected. Entries may be told
// apart by extended attributes only, which describe leaves out.
func unlike(found, expected *change.Entry) string {
	text := describe(found)
	if text != describe(expected) || found == nil {
		return text
	}
	var names []string
	for k := range attrNames(found.Xattrs, expected.Xattrs) {
		if !sameAttr(found.Xattrs, expected.Xattrs, k) {
			names = append(names, change.Escape(k))
		}
	}
	slices.Sort(names)
	return text + ", with another " + strings.Join(names, " ")
}

// attrNames returns the names of all attributes in some sets.
func attrNames(ms ...map[string][]byte) map[string]bool {
	all := map[string]bool{}
	for _, m := range ms {
		for k := range m {
			all[k] = true
		}
	}
	return all
}

// sameAttr reports that two sets agree about one attribute, its absence included.
func sameAttr(a, b map[string][]byte, name string) bool {
	v, ok := a[name]
	w, also := b[name]
	return ok == also && bytes.Equal(v, w)
}

// backup is where the original of a swapped step is.
func backup(s backends.Step) change.Path { return join(s.Place.Dir, s.Place.Name) }

// putBack is the command that restores the original by hand.
func putBack(s backends.Step) string {
	return fmt.Sprintf("mv -T -- %s %s", quote(backup(s)), quote(s.Change.Path))
}

// homeless says what to do where the directory of the original is not there, or
// is another one: to move the original to that path now might overwrite what
// somebody has behind a symlink.
func homeless(s backends.Step) string {
	return fmt.Sprintf("put its directory back, then: netsandbox recover (the original is kept at %s)", quote(backup(s)))
}

// quote writes a path as one word for a POSIX shell; bytes that must not reach a
// terminal take bash's $'…' form.
func quote(p change.Path) string {
	s := string(p)
	plain := strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%,=", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
	switch {
	case plain:
		return s
	case p.String() == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return "$'" + strings.ReplaceAll(p.String(), "'", `\x27`) + "'"
}
