package change

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"sync"
	"unicode"
)

// masks find private keys. A match is a secret whole, or its first group is kept
// and what follows the group is the secret. All are compiled when they are first
// used: exec imports this package and does not need them.
var masks = sync.OnceValue(func() []*regexp.Regexp {
	const (
		armour = `-{4,5} ?%s [^-\n]*?(?i:private key|static key)[^-\n]*-{4,5}`
		// The names of settings whose value is a key: wg(8) and its like, keyfiles of
		// NetworkManager, PuTTY, kubeconfig, service accounts in JSON or YAML.
		names = `(?:private[-_]?key|pre-?shared[-_]?key|private-mac|client-key-data|secret-key)`
	)
	return []*regexp.Regexp{
		// PEM, OpenSSH, PGP, SSH2, OpenVPN. It may be indented or written on one line
		// of JSON, and one that does not end is secret to the end of the text.
		regexp.MustCompile(fmt.Sprintf(`(?s)`+armour+`.*?(?:`+armour+`|\z)`, "BEGIN", "END")),
		// The same in base64, as the values of a kubeconfig or a Secret.
		regexp.MustCompile(`LS0tL[A-Za-z0-9+/]{30,}(?:\r?\n[ \t]*[A-Za-z0-9+/]{16,})*(?:\r?\n[ \t]*[A-Za-z0-9+/]+=|)={0,2}`),
		regexp.MustCompile(`AGE-(?:SECRET-KEY|PLUGIN-[A-Z0-9-]+)-1[0-9A-Z]+`),
		regexp.MustCompile(`(?im)^(private-lines:[ \t]*[0-9]+\r?\n)(?:[A-Za-z0-9+/=]+(?:\r?\n|\z))+`),
		regexp.MustCompile(`(?im)^(untrusted comment:[^\n]*secret key[^\n]*\n)[^\s]+`),
		regexp.MustCompile(`(?im)(^[ \t]*(?:- )?["']?` + names + `["']?[ \t]*[=:][ \t]*["']?|["']` + names + `["'][ \t]*:[ \t]*["'])[^\s"',]+`),
	}
})

// MaskKeys replaces private keys by a note with the first digits of their hash,
// so that a reader sees that a key changed and not what it is. Public keys and
// certificates stay.
func MaskKeys(b []byte) []byte {
	for _, re := range masks() {
		b = re.ReplaceAllFunc(b, func(m []byte) []byte {
			kept := re.FindSubmatchIndex(m)
			at := 0
			if len(kept) > 2 && kept[3] > 0 {
				at = kept[3]
			}
			secret, tail := m[at:], []byte(nil)
			if trimmed := bytes.TrimRight(secret, "\r\n"); len(trimmed) < len(secret) {
				secret, tail = trimmed, secret[len(trimmed):]
			}
			if !private(secret) {
				return m
			}
			return bytes.Join([][]byte{m[:at], note(secret), tail}, nil)
		})
	}
	return b
}

// private tells a key from what only stands in the place of one: a note of ours,
// the path of a file that holds it, a reference, armour of another kind.
func private(secret []byte) bool {
	if bytes.HasPrefix(secret, []byte("LS0tL")) {
		text, err := base64.StdEncoding.DecodeString(string(secret[:32])) // the first line of armour and no more
		return err == nil && bytes.Contains(text, []byte("PRIVATE"))
	}
	if bytes.HasPrefix(noteStart, secret) || !bytes.ContainsFunc(secret, unicode.IsLetter) && !bytes.ContainsFunc(secret, unicode.IsDigit) {
		return false
	}
	// A key in base64 may begin with a slash, and 32 bytes of it end so.
	path := bytes.IndexByte([]byte("/.~$%<{"), secret[0]) >= 0
	return !path || len(secret) == 44 && secret[43] == '='
}

var noteStart = []byte("[private key masked")

func note(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return []byte(string(noteStart) + ", sha256 " + hex.EncodeToString(sum[:4]) + "]")
}
