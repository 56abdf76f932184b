package journal

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Why a database is refused. Nothing in it was changed.
var (
	ErrForeign  = errors.New("not a netsandbox journal")
	ErrNewer    = errors.New("journal was written by a newer netsandbox")
	ErrOlder    = errors.New("journal was written by an older netsandbox; any command that changes something upgrades it")
	ErrCorrupt  = errors.New("journal is damaged")
	ErrReadOnly = errors.New("journal is read-only")
	ErrFull     = errors.New("no space left for the journal")
)

// What an operation on rows may answer.
var (
	ErrBusy     = errors.New("journal is in use by another command")
	ErrNotFound = errors.New("not in the journal")
	ErrExists   = errors.New("already in the journal")
	ErrMoved    = errors.New("it changed since it was read")
)

// explain joins the sentinel that callers branch on to an error of the driver.
func explain(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	primary := e.Code() & 0xff
	switch {
	case primary == sqlite3.SQLITE_BUSY || primary == sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case primary == sqlite3.SQLITE_CORRUPT || primary == sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	case primary == sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	case primary == sqlite3.SQLITE_FULL || e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE:
		// The driver reports the index file, which cannot be made longer, as an I/O error.
		return fmt.Errorf("%w: %w", ErrFull, err)
	case e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE || e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}
