package txn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/netsandbox/netsandbox/backends"
)

// The names in a transaction's directory.
const (
	logName      = "log"
	originalsDir = "originals"
)

// Txn is one transaction. It is not safe for concurrent use.
type Txn struct {
	dir string
	log log
	state
	locked bool
	doubt  bool // whether a commit of ours is on the disk is not known
	clock  func() time.Time
}

// Create begins a transaction in a new directory below dir, which must exist,
// and returns it locked. Nothing touches the host before Stage.
func Create(dir string, h Header) (*Txn, error) {
	h.Format = format
	if h.Created.IsZero() {
		h.Created = time.Now()
	}
	if h.ID == "" {
		h.ID = NewID(h.Created)
	}
	t := &Txn{dir: filepath.Join(dir, h.ID), clock: time.Now}
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create transaction: %w", err)
	}
	if err := t.create(dir, h); err != nil {
		return nil, errors.Join(fmt.Errorf("create transaction %s: %w", h.ID, err), t.abandon())
	}
	return t, nil
}

// create makes the file in a new directory below dir.
func (t *Txn) create(dir string, h Header) (err error) {
	t.log.file, err = os.OpenFile(filepath.Join(t.dir, logName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := t.TryLock(); err != nil {
		return err
	}
	if err := t.write(record{Kind: recHeader, Header: &h}); err != nil {
		return err
	}
	return errors.Join(syncDir(t.dir), syncDir(dir))
}

// abandon removes a transaction that could not be begun.
func (t *Txn) abandon() error {
	if t.log.file == nil {
		return os.Remove(t.dir)
	}
	return errors.Join(os.Remove(t.log.file.Name()), t.log.file.Close(), os.Remove(t.dir))
}

// Open reads a transaction, given its directory. It takes no lock; what it
// reports may be outdated at once, which Lock mends.
func Open(dir string) (*Txn, error) {
	name := filepath.Join(dir, logName)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errReadOnly) {
		f, err = os.Open(name) // good for reading, and every change will say why not
	}
	if err != nil {
		return nil, fmt.Errorf("open transaction: %w", err)
	}
	t := &Txn{dir: dir, log: log{file: f}, clock: time.Now}
	if err := t.Reload(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if t.header.ID == "" {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, ErrEmpty), f.Close())
	}
	return t, nil
}

// List returns the directories of the transactions below dir, oldest first.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list transactions: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "apply-") {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs, nil
}

// Close gives up the lock and the file.
func (t *Txn) Close() error { return t.log.file.Close() }

// Reload reads the file again.
func (t *Txn) Reload() error {
	t.state = state{}
	return t.log.read(t.fold)
}

// Lock waits for the right to touch the host and reads what others did.
func (t *Txn) Lock(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := t.TryLock()
		if !errors.Is(err, ErrBusy) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// TryLock is Lock for callers that would rather be told [ErrBusy].
func (t *Txn) TryLock() error {
	if t.locked {
		return nil
	}
	if err := tryLock(t.log.file); err != nil {
		return fmt.Errorf("lock transaction %s: %w", filepath.Base(t.dir), err)
	}
	if err := t.Reload(); err != nil {
		return errors.Join(err, unlock(t.log.file))
	}
	t.locked = true
	return nil
}

// Unlock lets others touch the host.
func (t *Txn) Unlock() error {
	t.locked = false
	return unlock(t.log.file)
}

// ID returns the transaction's name.
func (t *Txn) ID() string { return t.header.ID }

// Dir returns the transaction's directory, which Open takes.
func (t *Txn) Dir() string { return t.dir }

// File returns the name of the transaction's file, which a keeper watches.
func (t *Txn) File() string { return filepath.Join(t.dir, logName) }

// Header returns what the transaction is for.
func (t *Txn) Header() Header { return t.header }

// Status returns the transaction's state.
func (t *Txn) Status() Status { return t.status() }

// Finished reports that there is nothing left to do: it was decided, and what
// the decision asks for is done.
func (t *Txn) Finished() bool { return t.finished() }

// Pruned reports that the exchanged originals were given up.
func (t *Txn) Pruned() bool { return t.seen[recPruned] }

// Touched reports that the host may have been changed.
func (t *Txn) Touched() bool { return t.seen[recSwap] }

// Steps returns the prepared steps, in order.
func (t *Txn) Steps() []backends.Step { return slices.Clone(t.steps) }

// Keeper returns the process that watches, or nil.
func (t *Txn) Keeper() *Keeper { return t.keeper }

// Verdict returns the decision, or nil. A later rollback does not change it.
func (t *Txn) Verdict() *Verdict { return t.verdict }

// Reverted returns who took a committed transaction back, or nil.
func (t *Txn) Reverted() *Verdict { return t.revert }

// Leftovers returns what the last undo could not restore, and how many more
// there were than the record had room for.
func (t *Txn) Leftovers() ([]backends.Leftover, int) { return slices.Clone(t.leftovers), t.unlisted }

// write appends a record and folds it.
func (t *Txn) write(r record) error {
	r.At = t.clock().UTC()
	if err := t.log.append(r); err != nil {
		return err
	}
	return t.fold(r)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
