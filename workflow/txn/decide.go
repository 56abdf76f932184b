package txn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/netsandbox/netsandbox/backends"
)

// originals is where the second copy is kept.
func (t *Txn) originals() string { return filepath.Join(t.dir, originalsDir) }

// decide writes the verdict, or returns the one that stands.
func (t *Txn) decide(d Decision, by Party, reason string) error {
	if err := t.TryLock(); err != nil {
		return err
	}
	if t.verdict != nil {
		return &DecidedError{*t.verdict}
	}
	v := Verdict{Decision: d, By: by, Reason: reason, At: t.clock().UTC()}
	if t.doubt {
		// Short enough for the sector of the commit: the disk has one or the other.
		v.InDoubt, v.Reason = true, "the commit could not be recorded"
	}
	err := t.write(record{Kind: recVerdict, Verdict: &v})
	t.doubt = err != nil && (t.doubt || d == Commit)
	return err
}

// Commit decides that the trial stays. The host needs only Clean afterwards.
func (t *Txn) Commit(by Party, reason string) error {
	if err := t.enter("commit", Trial); err != nil {
		return err
	}
	return t.decide(Commit, by, reason)
}

// Undo decides against the trial and takes it back; where that was decided
// before, it finishes what was begun. What cannot be restored is returned and
// recorded: the transaction stays incomplete until a later Undo finds nothing,
// or Accept. A committed transaction is refused with [ErrCommitted].
//
// The host is taken back also when the decision cannot be recorded, its disk
// being read-only or broken: nobody decided for the trial, so whoever reads the
// file later undoes too. Only a commit that was tried and may be on that disk
// keeps the host as it is, whatever the file turns out to say; it held.
func (t *Txn) Undo(ctx context.Context, host backends.Host, by Party, reason string) ([]backends.Leftover, error) {
	err := t.decide(Undo, by, reason)
	var d *DecidedError
	switch {
	case err == nil, errors.As(err, &d) && d.Verdict.Decision == Undo:
		return t.takeBack(ctx, host)
	case d != nil, !t.locked, t.doubt, !t.seen[recSwap]:
		return nil, err
	}
	left, uerr := host.Undo(context.WithoutCancel(ctx), t.Steps())
	if uerr == nil {
		err = fmt.Errorf("the host was taken back, which could not be recorded: %w", err)
	}
	return left, errors.Join(err, uerr)
}

// Rollback takes a committed transaction back. Whether the host is still as
// committed, and no newer transaction is in the way, is for the caller to ask
// first, by Verify; what changed all the same is left alone and returned.
func (t *Txn) Rollback(ctx context.Context, host backends.Host, by Party, reason string) ([]backends.Leftover, error) {
	if err := t.TryLock(); err != nil {
		return nil, err
	}
	if s := t.status(); s != Committed && t.revert == nil {
		return nil, orderError("roll back", s)
	}
	if t.Forgotten() {
		return nil, ErrForgotten
	}
	if t.revert == nil {
		v := Verdict{Decision: Undo, By: by, Reason: reason, At: t.clock().UTC()}
		if err := t.write(record{Kind: recRevert, Verdict: &v}); err != nil {
			return nil, err
		}
	}
	return t.takeBack(ctx, host)
}

// takeBack undoes, records what is left, and cleans up.
func (t *Txn) takeBack(ctx context.Context, host backends.Host) ([]backends.Leftover, error) {
	if t.finished() {
		return t.leftovers, nil
	}
	if err := t.log.affirm(); err != nil && (t.revert != nil || t.verdict.InDoubt) {
		return nil, err // the disk may say that it is committed
	}
	// An undo that has begun is not given up because somebody lost patience.
	ctx = context.WithoutCancel(ctx)
	var left []backends.Leftover
	if t.seen[recSwap] {
		missing := t.restore(ctx, host)
		var err error
		left, err = host.Undo(ctx, t.Steps())
		if err := errors.Join(missing, err); err != nil {
			return left, err
		}
	}
	if err := t.write(undoneRecord(left)); err != nil {
		return left, err
	}
	if len(left) > 0 {
		// Ours goes away, the originals that found no way back stay beside it.
		return left, host.Clean(ctx, t.Steps(), true)
	}
	return nil, t.Clean(ctx, host)
}

// restore makes originals anew that are no longer in the slots from which the
// undo takes them: they were pruned, or somebody tidied up. An error does not
// stop the undo, which names what it could not find.
func (t *Txn) restore(ctx context.Context, host backends.Host) error {
	a, ok := host.(Archiver)
	if !ok || t.seen[recUndone] {
		return nil
	}
	steps, err := a.Restore(ctx, t.Steps(), t.originals())
	if err != nil {
		return fmt.Errorf("restore originals from the second copy: %w", err)
	}
	places := placesOf(steps)
	if reflect.DeepEqual(places, placesOf(t.steps)) {
		return nil
	}
	return t.write(record{Kind: recRestored, Places: places})
}

// undoneRecord lists leftovers as far as the reserve goes; each undo finds them
// all again.
func undoneRecord(left []backends.Leftover) record {
	r := record{Kind: recUndone, Leftovers: left}
	for room := reserve / 4; ; {
		b, err := json.Marshal(r.Leftovers)
		if err != nil || len(b) <= room {
			return r
		}
		keep := len(r.Leftovers) * room / len(b) * 9 / 10
		r.Leftovers, r.Unlisted = left[:keep], len(left)-keep
	}
}

// Accept settles an incomplete undo: a person wants what is there now.
func (t *Txn) Accept(ctx context.Context, host backends.Host, reason string) error {
	if err := t.TryLock(); err != nil {
		return err
	}
	if t.status() != Incomplete || !t.seen[recUndone] {
		return orderError("accept", t.status())
	}
	v := Verdict{Decision: Undo, By: Operator, Reason: reason, At: t.clock().UTC()}
	if err := t.write(record{Kind: recAccepted, Verdict: &v, Leftovers: t.leftovers, Unlisted: t.unlisted}); err != nil {
		return err
	}
	return t.Clean(ctx, host)
}

// Clean does what is left after a verdict and records that nothing is. The
// originals of a committed transaction stay, as its first backup.
func (t *Txn) Clean(ctx context.Context, host backends.Host) error {
	if err := t.TryLock(); err != nil {
		return err
	}
	switch {
	case t.finished():
		return nil
	case t.verdict == nil:
		return orderError("clean", t.status())
	case t.undoing() && !t.seen[recUndone]:
		return orderError("clean", t.status())
	}
	if err := t.log.affirm(); err != nil {
		return err
	}
	// Before the swap everything hidden is ours. After it only what is known by
	// its inode number goes, until the backup is given up.
	keep := t.seen[recSwap] && (t.undoing() || !t.seen[recPruned])
	if err := host.Clean(ctx, t.Steps(), keep); err != nil {
		return err
	}
	if t.undoing() && !t.seen[recAccepted] {
		// Every original is in its place again.
		if err := os.RemoveAll(t.originals()); err != nil {
			return fmt.Errorf("remove second copy: %w", err)
		}
	}
	return t.write(record{Kind: recClean})
}

// Prune gives up the first backup of a committed transaction. The second copy
// stays, and a rollback is still possible.
func (t *Txn) Prune(ctx context.Context, host backends.Host) error {
	if err := t.TryLock(); err != nil {
		return err
	}
	if t.status() != Committed {
		return orderError("prune", t.status())
	}
	if !t.seen[recPruned] {
		if err := t.write(record{Kind: recPruned}); err != nil {
			return err
		}
	}
	return t.Clean(ctx, host)
}
