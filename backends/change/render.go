package change

import (
	"bytes"
	"fmt"
	"strings"
)

// Text renders a change for reading: what happens in words, one line each, and
// for text contents a unified diff. old and new are the bytes of the two sides,
// nil where a side is no regular file; one larger than [DiffLimit] may be left
// out. Private keys are masked unless secrets.
func Text(c Change, old, new []byte, secrets bool) string {
	var b strings.Builder
	for _, w := range Words(c) {
		fmt.Fprintf(&b, "%s: %s\n", c.Path, w)
	}
	if !contentDiffers(c) {
		return b.String()
	}
	switch {
	case missing(c.Old, old) || missing(c.New, new) || max(len(old), len(new)) > DiffLimit:
		fmt.Fprintf(&b, "%s: content too large to show: %s\n", c.Path, sides(c, size))
	case Binary(old) || Binary(new):
		fmt.Fprintf(&b, "%s: binary content: %s\n", c.Path, sides(c, size))
	default:
		masked := false
		if !secrets {
			o, n := side(c.Old, MaskKeys(old)), side(c.New, MaskKeys(new))
			masked = !bytes.Equal(o, old) || !bytes.Equal(n, new)
			old, new = o, n
		}
		b.WriteString(Unified(side(c.Old, old), side(c.New, new), c.Path))
		if masked {
			fmt.Fprintf(&b, "%s: private keys are masked\n", c.Path)
		}
	}
	return b.String()
}

// side makes an empty file distinct from none: nil stands for no file at all.
func side(e *Entry, b []byte) []byte {
	switch {
	case e == nil || e.Type != Regular:
		return nil
	case b == nil:
		return []byte{}
	}
	return b
}

func missing(e *Entry, b []byte) bool {
	return e != nil && e.Type == Regular && e.Size > 0 && b == nil
}

func contentDiffers(c Change) bool {
	old, new := c.Old != nil && c.Old.Type == Regular, c.New != nil && c.New.Type == Regular
	if old && new {
		return c.Old.SHA256 != c.New.SHA256
	}
	return old || new
}

// Words tells everything about a change but the content of files.
func Words(c Change) []string {
	switch {
	case c.Old == nil && c.New == nil:
		return nil
	case c.Old == nil:
		return []string{"new " + describe(c.New)}
	case c.New == nil:
		return []string{"deleted, was " + describe(c.Old)}
	case c.Old.Type != c.New.Type:
		return []string{describe(c.Old) + " becomes " + describe(c.New)}
	}
	var words []string
	if c.Old.Mode != c.New.Mode {
		words = append(words, fmt.Sprintf("mode %s -> %s", mode(c.Old), mode(c.New)))
	}
	if c.Old.UID != c.New.UID || c.Old.GID != c.New.GID {
		words = append(words, fmt.Sprintf("owner %s -> %s", owner(c.Old), owner(c.New)))
	}
	if c.Old.Target != c.New.Target {
		words = append(words, fmt.Sprintf("symlink to %s -> %s", c.Old.Target, c.New.Target))
	}
	words = append(words, attributeWords(c.Old, c.New)...)
	switch {
	case c.New.Link != "":
		words = append(words, fmt.Sprintf("becomes one file with %s", c.New.Link))
	case c.New.Type == Regular && c.Old.Same(c.New):
		// The first name of a group is in the list because of the others.
		words = append(words, "other names become one file with it")
	}
	return words
}

// describe tells everything about an entry but its content.
func describe(e *Entry) string {
	parts := []string{string(e.Type)}
	switch {
	case e.Type == Symlink:
		parts[0] = fmt.Sprintf("symlink to %s", e.Target)
	case e.Sparse:
		parts[0] += " with holes"
	}
	if e.Link != "" {
		parts = append(parts, fmt.Sprintf("one with %s", e.Link))
	}
	if e.Type != Symlink {
		parts = append(parts, "mode "+mode(e))
	}
	parts = append(parts, "owner "+owner(e))
	return strings.Join(append(parts, Attributes(e)...), ", ")
}

// mode renders permission bits, with the words for those that give power.
func mode(e *Entry) string {
	s := fmt.Sprintf("%04o", e.Mode)
	if e.Mode&0o4000 != 0 {
		s += " (setuid)"
	}
	if e.Mode&0o2000 != 0 {
		s += " (setgid)"
	}
	return s
}

func owner(e *Entry) string { return fmt.Sprintf("%d:%d", e.UID, e.GID) }

func size(e *Entry) string {
	s := Size(e.Size)
	if e.Sparse {
		s += " with holes"
	}
	return fmt.Sprintf("%s, sha256 %s", s, e.SHA256[:min(len(e.SHA256), 12)])
}

// Size renders a number of bytes for reading: exactly below a megabyte, then in
// the unit that leaves at most four digits.
func Size(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d bytes", n)
	}
	units := []string{"MiB", "GiB", "TiB", "PiB", "EiB"}
	v := float64(n) / (1 << 20)
	for len(units) > 1 && v >= 1000 {
		v, units = v/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", v, units[0])
}

// sides renders the regular files of a change with how, old before new.
func sides(c Change, how func(*Entry) string) string {
	var parts []string
	for _, e := range []*Entry{c.Old, c.New} {
		if e != nil && e.Type == Regular {
			parts = append(parts, how(e))
		}
	}
	return strings.Join(parts, " -> ")
}
