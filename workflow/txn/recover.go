package txn

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/netsandbox/netsandbox/backends"
)

// Result is what a recovery found and did.
type Result struct {
	ID        string
	Status    Status
	Did       Action
	Verdict   *Verdict
	OtherBoot bool // the machine was restarted since the transaction began
	Leftovers []backends.Leftover
}

// Action says what a recovery had to do.
type Action string

// The actions.
const (
	Nothing   Action = "nothing"
	Cleaned   Action = "cleaned"     // it was committed; the rest was tidying up
	TakenBack Action = "rolled back" // it was undecided, or its undo unfinished
)

// Recover finishes one transaction from its file alone, given its directory:
// undecided, it is undone; committed, it is cleaned up; an undo that was begun is
// finished. It is idempotent. [ErrBusy] says that a living process is at it.
//
// Files are undone on any boot; the boot tells only whether this is another one.
func Recover(ctx context.Context, dir string, host backends.Host, boot string) (res Result, err error) {
	t, err := Open(dir)
	if errors.Is(err, ErrEmpty) || errors.Is(err, fs.ErrNotExist) {
		return Result{ID: filepath.Base(dir), Status: Undone, Did: Nothing}, forget(dir)
	}
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return t.finish(ctx, host, boot)
}

// forget removes a transaction whose Create died before it had written what it
// is for. Nothing can have come of it.
func forget(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, logName), os.O_RDWR, 0)
	if err == nil {
		defer f.Close()
		if err := tryLock(f); err != nil {
			return err // it is just being created
		}
		t := &Txn{dir: dir, log: log{file: f}}
		if err := t.Reload(); err != nil || t.header.ID != "" {
			return err
		}
		err = os.Remove(f.Name())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *Txn) finish(ctx context.Context, host backends.Host, boot string) (Result, error) {
	res := Result{ID: t.header.ID, Did: Nothing, OtherBoot: boot != t.header.BootID}
	if err := t.TryLock(); err != nil {
		res.Status, res.Verdict = t.status(), t.verdict
		return res, err
	}
	var err error
	switch {
	case t.finished():
	case t.seen[recAccepted]:
		res.Did = Cleaned
		err = t.Clean(ctx, host)
	case t.undoing():
		res.Did = TakenBack
		res.Leftovers, err = t.takeBack(ctx, host)
	case t.verdict != nil:
		res.Did = Cleaned
		err = t.Clean(ctx, host)
	default:
		res.Did = TakenBack
		res.Leftovers, err = t.Undo(ctx, host, Recoverer, reasonFor(res.OtherBoot))
	}
	res.Status, res.Verdict = t.status(), t.verdict
	return res, err
}

func reasonFor(otherBoot bool) string {
	if otherBoot {
		return "the machine was restarted during the trial"
	}
	return "its processes are gone"
}
