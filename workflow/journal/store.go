package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Tx is one transaction. Its methods must not be used after the function that
// received it returned, nor from more than one goroutine.
type Tx struct {
	tx  *sql.Tx
	opt Options
}

// Update runs fn in one immediate transaction and commits it when fn returns
// nil: everything fn read is still true when what it wrote becomes visible.
// While another process writes it waits, until ctx is done or Options.Wait is
// over ([ErrBusy]); fn itself runs at most once.
func (s *Store) Update(ctx context.Context, fn func(tx *Tx) error) error {
	if s.write == nil {
		return fmt.Errorf("update journal: %w", ErrReadOnly)
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return fmt.Errorf("update journal: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	s.opt.trace("begun")
	if err := fn(&Tx{tx: tx, opt: s.opt}); err != nil {
		return err
	}
	s.opt.trace("commit")
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit to journal: %w", explain(err))
	}
	s.opt.trace("committed")
	return nil
}

// begin takes the write lock. SQLite's own wait is kept short, because it
// cannot be interrupted; the rest of the waiting is done here.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	deadline := time.Now().Add(s.opt.Wait)
	for {
		tx, err := s.write.BeginTx(ctx, nil)
		if err = explain(err); err == nil || !errors.Is(err, ErrBusy) {
			return tx, err
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

// View runs fn on one consistent snapshot. Writers are not held up by it.
func (s *Store) View(ctx context.Context, fn func(tx *Tx) error) error {
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("read journal: %w", explain(err))
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	return fn(&Tx{tx: tx, opt: s.opt})
}

// exec runs one static statement.
func (t *Tx) exec(query string, args ...any) (sql.Result, error) {
	t.opt.trace("statement")
	r, err := t.tx.Exec(query, args...)
	return r, explain(err)
}

// row is what scan functions read from: one row of either kind of query.
type row interface{ Scan(dest ...any) error }

// one reads a single row; none is [ErrNotFound].
func one[T any](t *Tx, scan func(row) (T, error), query string, args ...any) (T, error) {
	v, err := scan(t.tx.QueryRow(query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return v, explain(err)
}

// all reads every row.
func all[T any](t *Tx, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := t.tx.Query(query, args...)
	if err != nil {
		return nil, explain(err)
	}
	defer rows.Close()
	var vs []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, explain(err)
		}
		vs = append(vs, v)
	}
	return vs, explain(rows.Err())
}
