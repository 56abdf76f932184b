package txn

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/netsandbox/netsandbox/backends"
)

// recForgotten is the intent to give up both copies of the originals. Nothing
// follows it: what is left of the transaction is its history.
const recForgotten kind = "forgotten"

// ErrForgotten: there is nothing left to restore from.
var ErrForgotten = errors.New("the originals of the transaction were given up")

// Forgotten reports that a rollback is not possible any more.
func (t *Txn) Forgotten() bool { return t.seen[recForgotten] }

// Forget gives up what a decided transaction keeps: the originals hidden beside
// their targets and the second copy. It is recorded before anything goes, so a
// rollback never begins on half of them; called again, it goes on.
func (t *Txn) Forget(ctx context.Context, host backends.Host) error {
	if err := t.TryLock(); err != nil {
		return err
	}
	switch t.status() {
	case Committed:
		if !t.seen[recForgotten] {
			if err := t.write(record{Kind: recForgotten}); err != nil {
				return err
			}
		}
		if err := t.Prune(ctx, host); err != nil {
			return err
		}
	case Undone:
		// Only what an undo could not bring back and a person accepted to lose can
		// be left, and nobody asks for it again.
		if err := host.Clean(ctx, t.Steps(), false); err != nil {
			return err
		}
	default:
		return orderError("forget", t.status())
	}
	err := durable("forget second copy", func() error { return os.RemoveAll(t.originals()) })
	if err != nil {
		return fmt.Errorf("remove second copy: %w", err)
	}
	return nil
}
