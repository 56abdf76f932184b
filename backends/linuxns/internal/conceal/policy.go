// Package conceal finds what a view hides: what its owner named, and the secrets
// of others that are not for whatever runs in it. The policy is one data file.
//
// It looks at the host as it is, before each build of a view; how a path is
// covered is the builder's business. A home directory belongs to somebody who may
// put anything there, so nothing found in one leads to a cover of what is not
// theirs, and nothing is looked at that could make the builder wait.
package conceal

import (
	_ "embed"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/netsandbox/netsandbox/backends"
)

//go:embed policy.txt
var policy string

// rule is one line of the policy.
type rule struct {
	how string // [backends.Hidden] or [backends.Redacted]
	// at is an absolute pattern, or one below a home directory.
	at   string
	home bool
}

// rules parses the policy when it is first needed. A policy that does not parse
// is a mistake of this program's, and a test finds it.
var rules = sync.OnceValue(func() []rule {
	rs, err := parse(policy)
	if err != nil {
		panic(err)
	}
	return rs
})

func parse(text string) ([]rule, error) {
	var rs []rule
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		word, at, _ := strings.Cut(line, " ")
		r := rule{at: strings.TrimSpace(at)}
		switch word {
		case "hide":
			r.how = backends.Hidden
		case "redact":
			r.how = backends.Redacted
		default:
			return nil, fmt.Errorf("policy: %q is no rule", line)
		}
		if rest, ok := strings.CutPrefix(r.at, "~/"); ok {
			r.home, r.at = true, rest
		}
		if path.IsAbs(r.at) == r.home || path.Clean(r.at) != r.at || strings.HasPrefix(r.at, "..") || strings.Contains(path.Dir(r.at), "*") {
			return nil, fmt.Errorf("policy: %q is no path", line)
		}
		rs = append(rs, r)
	}
	return rs, nil
}
