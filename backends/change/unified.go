package change

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
)

// DiffLimit is the size of a side above which contents are told in words only:
// nobody reads more, and the time to compare grows faster than the size.
const DiffLimit = 1 << 20

// Unified returns the unified diff of two text contents, empty when they are
// equal. A nil side does not exist and is named /dev/null. Bytes that could
// steer a terminal are escaped; tabs and backslashes stay, so that code reads
// as it is.
func Unified(old, new []byte, path Path) string {
	return udiff.Unified(label(old, path), label(new, path), printable(old), printable(new))
}

func label(side []byte, path Path) string {
	if side == nil {
		return "/dev/null"
	}
	return path.String()
}

// Binary reports content that is no text: it holds a NUL byte near its start, as
// git(1) decides it. Other encodings than UTF-8 are text with escaped bytes.
func Binary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// printable escapes what must not reach a terminal. It is for reading, not for
// reading back: a backslash is itself.
func printable(b []byte) string {
	s := string(b)
	keep := func(r rune, n int) bool {
		return r == '\n' || r == '\t' || r == '\\' || r == utf8.RuneError && n > 1 || !unsafe(r)
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if keep(r, n) {
			out.WriteString(s[i : i+n])
		} else {
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&out, `\x%02x`, c)
			}
		}
		i += n
	}
	return out.String()
}
