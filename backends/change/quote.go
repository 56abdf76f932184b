package change

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Quote renders s as one word of a POSIX shell command line that can be pasted
// and is safe to print. Plain words stay as they are, anything else is put in
// single quotes, and what cannot be printed takes the $'…' form of bash and of
// POSIX.1-2024.
func Quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	if strings.IndexFunc(s, func(r rune) bool { return r != '\\' && unsafe(r) }) < 0 {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\\' || r == '\'':
			b.WriteByte('\\')
			b.WriteRune(r)
		case unsafe(r):
			for _, c := range []byte(s[i : i+n]) {
				// Octal takes at most three digits; \xNN would swallow more in some shells.
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	b.WriteByte('\'')
	return b.String()
}

func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("/._-+,:@%=", r)
}
