package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards/circuit"
)

// Digest returns the plan's identity, "sha256:" and 64 hex digits.
//
// It covers what authority is given for: environment, backend, base and host;
// the changes by their own canonical digest, that is with wanted content, and
// origins by content, mode and owner; every circuit's definition with its
// required flag; the policy, and what was weakened. The order in which any of
// these was found does not count, nor do times, inode numbers, observations, the
// cycle, or what happens to live in the view.
//
// Every part is length-prefixed, so no two different plans share an encoding.
func (p *Plan) Digest() string {
	h := sha256.New()
	for _, s := range []string{
		"netsandbox/plan/v1", p.EnvID, p.Env, p.Backend, string(p.Base), p.HostID, change.Digest(p.Changes),
	} {
		text(h, s)
	}
	circuits := slices.SortedFunc(slices.Values(p.Circuits), func(a, b circuit.Definition) int {
		return strings.Compare(a.ID, b.ID)
	})
	number(h, len(circuits))
	for _, c := range circuits {
		c.Groups = slices.Sorted(slices.Values(c.Groups))
		text(h, canonical(c))
	}
	text(h, canonical(p.Policy))
	weakened := slices.Sorted(slices.Values(p.Weakened))
	number(h, len(weakened))
	for _, w := range weakened {
		text(h, w)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// canonical is the JSON of a struct of strings, numbers and lists of them: the
// encoder writes fields in the order of their declaration, so equal values have
// equal text, and a field added later with omitempty changes no old digest.
func canonical(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("plan: a definition does not encode: %v", err)) // no such type is in it
	}
	return string(b)
}

func text(h hash.Hash, s string) {
	number(h, len(s))
	h.Write([]byte(s))
}

func number(h hash.Hash, n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

// hexDigits returns the 64 digits of a digest, which name its directory. Nothing
// else may: a digest comes from a command line.
func hexDigits(digest string) (string, error) {
	digits, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || !isHash(digits) {
		return "", fmt.Errorf("%w: %q is not sha256: and 64 hex digits", ErrNotFound, digest)
	}
	return digits, nil
}

func isHash(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}
