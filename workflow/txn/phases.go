package txn

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Archiver is a [backends.Host] that can keep a second copy of the originals,
// away from the host's files, and make them anew from it. The copy is made while
// the host stages; it is complete and durable when wait returns.
type Archiver interface {
	Archive(ctx context.Context, steps []backends.Step, dir string) (wait func() error, err error)
	Restore(ctx context.Context, steps []backends.Step, dir string) ([]backends.Step, error)
}

// auditor is a [backends.Host] that can tell whether the exchanged originals are
// still what the snapshot saw.
type auditor interface {
	Originals(ctx context.Context, steps []backends.Step) ([]backends.Leftover, error)
}

// enter is how every phase begins: the lock is ours, nobody has decided, and the
// transaction is where the phase starts from.
func (t *Txn) enter(verb string, from ...Status) error {
	if !t.locked {
		if err := t.TryLock(); err != nil {
			return err
		}
	}
	if t.verdict != nil {
		return &DecidedError{*t.verdict}
	}
	for _, s := range from {
		if t.status() == s {
			return nil
		}
	}
	return orderError(verb, t.status())
}

// Prepare takes the snapshot and records it. From here on the transaction can be
// undone by anybody who has its file.
func (t *Txn) Prepare(ctx context.Context, host backends.Host, cs []change.Change) error {
	if err := t.enter("prepare", Prepared); err != nil {
		return err
	}
	if t.seen[recPrepare] {
		return orderError("prepare again", t.status())
	}
	steps, err := host.Snapshot(ctx, t.header.ID, cs)
	if err != nil {
		return err
	}
	return t.write(record{Kind: recPrepare, Steps: steps})
}

// Arm records the keeper that has confirmed that it watches.
func (t *Txn) Arm(k Keeper) error {
	if err := t.enter("arm", Prepared); err != nil {
		return err
	}
	return t.write(record{Kind: recArmed, Keeper: &k})
}

// Stage puts everything wanted, and a second copy of the originals, where no
// program looks. After an error the caller undoes.
func (t *Txn) Stage(ctx context.Context, host backends.Host, wanted backends.Wanted) error {
	if err := t.enter("stage", Prepared, Armed); err != nil {
		return err
	}
	if !t.seen[recPrepare] {
		return orderError("stage", t.status())
	}
	steps, err := t.stage(ctx, host, wanted)
	if err != nil {
		return err
	}
	return t.write(record{Kind: recStaged, Places: placesOf(steps)})
}

// stage stages and archives at once; neither needs what the other does.
func (t *Txn) stage(ctx context.Context, host backends.Host, wanted backends.Wanted) ([]backends.Step, error) {
	a, ok := host.(Archiver)
	if !ok {
		return host.Stage(ctx, t.Steps(), wanted)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait, err := a.Archive(ctx, t.Steps(), t.originals())
	if err != nil {
		return nil, fmt.Errorf("keep a second copy: %w", err)
	}
	steps, err := host.Stage(ctx, t.Steps(), wanted)
	if err != nil {
		cancel()
		_ = wait() // only so that nothing of it goes on; why it ended is known
		return nil, err
	}
	if err := wait(); err != nil {
		return nil, fmt.Errorf("keep a second copy: %w", err)
	}
	return steps, nil
}

// Swap changes the host. After an error the caller undoes.
func (t *Txn) Swap(ctx context.Context, host backends.Host) error {
	if err := t.enter("swap", Applying); err != nil {
		return err
	}
	if !t.seen[recSwap] {
		if err := t.write(record{Kind: recSwap}); err != nil {
			return err
		}
	}
	if err := host.Swap(ctx, t.Steps()); err != nil {
		return err
	}
	return t.write(record{Kind: recSwapped})
}

// Verify compares the host with the plan, and the exchanged originals with the
// snapshot. It needs no lock: it reads. After the commit an original that somebody
// tidied away counts for nothing as long as there is the second copy.
func (t *Txn) Verify(ctx context.Context, host backends.Host) ([]backends.Leftover, error) {
	left, err := host.Verify(ctx, t.Steps())
	if err != nil {
		return nil, err
	}
	a, ok := host.(auditor)
	if !ok || t.Pruned() {
		return left, nil
	}
	more, err := a.Originals(ctx, t.Steps())
	if t.Status() == Committed {
		if _, serr := os.Stat(t.originals()); serr == nil {
			more = slices.DeleteFunc(more, func(l backends.Leftover) bool { return l.Missing })
		}
	}
	return append(left, more...), err
}

func placesOf(steps []backends.Step) []backends.Place {
	ps := make([]backends.Place, len(steps))
	for i, s := range steps {
		ps[i] = s.Place
	}
	return ps
}
