package journal

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed schema/001.sql
var schema001 string

// migrations make version n of the schema from version n-1; the n-th is number
// n. One that was released is never edited.
var migrations = []string{schema001}

// version returns the schema version of an open database.
func version(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (v int, err error) {
	err = db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v)
	return v, err
}

// current refuses a database that is not of this program's version.
func current(ctx context.Context, db *sql.DB, known int) error {
	v, err := version(ctx, db)
	switch {
	case err != nil:
		return err
	case v > known:
		return fmt.Errorf("%w: it has version %d, this program knows %d", ErrNewer, v, known)
	case v < known:
		return fmt.Errorf("%w: it has version %d, this program wants %d", ErrOlder, v, known)
	}
	return nil
}

// migrate brings the database to the newest version, one transaction a step.
// The version is read again inside it: another process may have been first.
func migrate(ctx context.Context, db *sql.DB, steps []string) error {
	for {
		v, err := version(ctx, db)
		if err != nil {
			return err
		}
		if v >= len(steps) {
			return current(ctx, db, len(steps))
		}
		if err := step(ctx, db, v, steps[v]); err != nil {
			return fmt.Errorf("migrate journal to version %d: %w", v+1, err)
		}
	}
}

func step(ctx context.Context, db *sql.DB, from int, script string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	now, err := version(ctx, tx)
	if err != nil || now != from {
		return err // another process took the step
	}
	if _, err := tx.ExecContext(ctx, script); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", from+1)); err != nil {
		return err
	}
	return tx.Commit()
}

// create makes a journal under another name, complete and closed, and renames
// it: at every moment there is either none or a whole one. Creators take turns
// by a lock on the directory.
func create(ctx context.Context, dir string, opt Options) error {
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(dir, File)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err // nil: another process made it meanwhile
	}
	fresh := path + ".new"
	for _, name := range []string{fresh, fresh + "-journal", fresh + "-wal", fresh + "-shm"} {
		// What a creation that was killed left behind.
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return readOnly(err)
		}
	}
	if err := build(ctx, fresh, opt); err != nil {
		return fmt.Errorf("make the journal: %w", err)
	}
	opt.trace("built")
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	opt.trace("renamed")
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func build(ctx context.Context, path string, opt Options) error {
	// SQLite would make the file with the umask's mode, and its log and index
	// files with the mode of the database.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return readOnly(err)
	}
	f.Close()
	opt.trace("made")
	db := connect(path, modeCreate)
	_, err = db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	opt.trace("marked")
	if err == nil {
		err = migrate(ctx, db, opt.migrations)
	}
	opt.trace("migrated")
	if err == nil {
		_, err = db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
	}
	return errors.Join(err, db.Close())
}

// readOnly names the reason when a directory cannot be written.
func readOnly(err error) error {
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// lockDir waits for the lock on the state directory.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { d.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			d.Close()
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			d.Close()
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
