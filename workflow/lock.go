package workflow

import (
	"errors"
	"fmt"

	"github.com/netsandbox/netsandbox/workflow/execlog"
)

// lock takes the environment's flock: shared by what adds to the layer, exclusive
// by what must see it hold still. It does not wait; a second command is told who
// is in the way.
func (w *Workflow) lock(p place, how execlog.Mode) (unlock func(), err error) {
	l, err := execlog.EnvLock(p.spec.Dir, how, false)
	if busy, ok := errors.AsType[*execlog.BusyError](err); ok {
		err = fmt.Errorf("%s: %w%s", p.env.Name, ErrBusy, busy.By())
		return nil, hint(err, "netsandbox status %s", p.env.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.env.Name, err)
	}
	return func() { _ = l.Close() }, nil
}
