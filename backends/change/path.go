package change

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Path is an absolute host path as the kernel has it: any bytes but NUL, no
// trailing slash, no "." or ".." element. It need not be valid UTF-8, so its
// text form (JSON, terminals, logs) escapes what could not be read back or
// could steer a terminal: control bytes, invalid UTF-8 and the backslash itself
// become \xNN. [Path.MarshalText] and [Path.UnmarshalText] are inverse.
type Path string

// String returns the escaped form, which is safe to print.
func (p Path) String() string { return Escape(string(p)) }

// MarshalText implements [encoding.TextMarshaler].
func (p Path) MarshalText() ([]byte, error) { return []byte(Escape(string(p))), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Path) UnmarshalText(b []byte) error {
	s, err := Unescape(string(b))
	if err != nil {
		return err
	}
	*p = Path(s)
	return nil
}

// Escape renders s with every control byte, invalid UTF-8 byte and backslash
// as \xNN. Printable text, also beyond ASCII, is left alone.
func Escape(s string) string {
	clean := true
	for _, r := range s {
		if unsafe(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if unsafe(r) {
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// unsafe reports a rune that must not reach a terminal or cannot round-trip.
// The bidirectional controls are in it because they reorder what a reader sees.
func unsafe(r rune) bool {
	return r < 0x20 || r == '\\' || r == 0x7f || r == utf8.RuneError ||
		r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Unescape is the inverse of [Escape].
func Unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 >= len(s) || s[i+1] != 'x' {
			return "", fmt.Errorf("unescape %q: a backslash must begin \\xNN", s)
		}
		n, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil {
			return "", fmt.Errorf("unescape %q: %w", s, err)
		}
		b.WriteByte(byte(n))
		i += 3
	}
	return b.String(), nil
}
