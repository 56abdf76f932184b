package change

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"sync"
)

// keyBlock is an armoured private key: PEM, OpenSSH, PGP, OpenVPN static keys. It
// may be indented or written on one line of JSON, and one that does not end is
// secret to the end of the text. Both are compiled when they are first used: exec
// imports this package and does not need them.
var keyBlock = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`(?s)-----BEGIN [^-\n]*?(?i:private key|static key)[^-\n]*-----.*?(?:-----END [^-\n]*?(?i:private key|static key)[^-\n]*-----|\z)`)
})

// keyLine is a key that is the value of a setting, as in wg(8) and PuTTY files.
var keyLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?im)^([ \t]*(?:PrivateKey|PresharedKey|Private-MAC)[ \t]*[=:][ \t]*)(\S+)`)
})

// MaskKeys replaces private keys by a note with the first digits of their hash,
// so that a reader sees that a key changed and not what it is.
func MaskKeys(b []byte) []byte {
	b = keyBlock().ReplaceAllFunc(b, note)
	return keyLine().ReplaceAllFunc(b, func(m []byte) []byte {
		parts := keyLine().FindSubmatch(m)
		return append(append([]byte{}, parts[1]...), note(parts[2])...)
	})
}

func note(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return []byte("[private key masked, sha256 " + hex.EncodeToString(sum[:4]) + "]")
}
