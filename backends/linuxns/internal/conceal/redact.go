package conceal

import (
	"bytes"
	"strings"
)

// Redact returns the content of shadow(5) or gshadow(5) without password hashes.
// Everything else stays: PAM refuses an account that has no line, and a line
// says when it expires. A lock, "!" before the hash, stays too, and so does an
// empty field, which is no secret.
func Redact(content []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(content) {
		name, rest, ok := bytes.Cut(line, []byte{':'})
		if !ok {
			continue // no entry; whatever it is, nobody looks it up
		}
		hash, rest, ok := bytes.Cut(rest, []byte{':'})
		if !ok {
			hash, rest = bytes.TrimRight(hash, "\n"), []byte{'\n'}
		}
		out.Write(name)
		out.WriteByte(':')
		out.WriteString(masked(string(hash)))
		if ok {
			out.WriteByte(':')
		}
		out.Write(rest)
	}
	return out.Bytes()
}

func masked(hash string) string {
	lock := hash[:len(hash)-len(strings.TrimLeft(hash, "!"))]
	switch hash[len(lock):] {
	case "", "*", "x":
		return hash
	}
	return lock + "*"
}
