package workflow

import (
	"fmt"

	"github.com/netsandbox/netsandbox/workflow/execlog"
)

// lock takes the environment's flock: shared by what adds to the layer, exclusive
// by what must see it hold still. It does not wait; a second command is told who
// is in the way.
func (w *Workflow) lock(p place, how execlog.Mode) (unlock func(), err error) {
	l, err := execlog.EnvLock(p.spec.Dir, how, false)
	if err != nil {
		return nil, hint(fmt.Errorf("%w: %s: %w", ErrBusy, p.env.Name, err), "netsandbox status %s", p.env.Name)
	}
	return func() { _ = l.Close() }, nil
}
