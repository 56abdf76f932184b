package workflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// secrets is what a new environment hides besides what was named: the secrets of
// everybody but its owner, and of whoever became root by sudo(8) or pkexec(1) to
// make it. An agent started so works with that user's keys.
func secrets(o CreateOptions) *backends.Secrets {
	if o.NoDefaultHide {
		return nil
	}
	s := &backends.Secrets{Owners: []uint32{uint32(os.Geteuid())}, Show: o.Show}
	if os.Geteuid() != 0 {
		return s
	}
	for _, name := range []string{"SUDO_UID", "PKEXEC_UID"} {
		uid, err := strconv.ParseUint(os.Getenv(name), 10, 32)
		if err == nil && !slices.Contains(s.Owners, uint32(uid)) {
			s.Owners = append(s.Owners, uint32(uid))
		}
	}
	return s
}

// checkHide makes what is to be hidden and shown absolute, and refuses to hide
// what the environment is for.
func checkHide(o *CreateOptions, base string) error {
	if o.NoDefaultHide && len(o.Show) > 0 {
		return fmt.Errorf("%w: --show takes from what is hidden by default, and --no-default-hide leaves nothing of it", ErrUsage)
	}
	for _, list := range []*[]string{&o.Hide, &o.Show} {
		for i, p := range *list {
			abs, err := filepath.Abs(p)
			if err != nil {
				return fmt.Errorf("resolve %s: %w", p, err)
			}
			(*list)[i] = abs
		}
	}
	for _, p := range o.Hide {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			real = p // nothing is there yet, or it cannot be looked at: its name counts
		}
		if below(base, real) {
			return hint(fmt.Errorf("%w: --hide %s would hide the base %s", ErrUsage, p, base), "netsandbox create %s --base DIR", o.Name)
		}
	}
	return nil
}

// covers lists what the view hides, with notes on what it cannot hide. A backend
// that hides nothing has none.
func (w *Workflow) covers(ctx context.Context, v backends.View) ([]backends.Cover, []string, error) {
	c, ok := v.(backends.Concealer)
	if !ok {
		return []backends.Cover{}, nil, nil
	}
	found, notes, err := c.Covers(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list what is hidden: %w", err)
	}
	return list(found), notes, nil
}

// covered reports that a path lies at or below what is hidden.
func covered(covers []backends.Cover, p change.Path) bool {
	return slices.ContainsFunc(covers, func(c backends.Cover) bool { return below(string(p), c.Path) })
}
