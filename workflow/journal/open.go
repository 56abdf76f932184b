package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

// File is the name of the database in the state directory.
const File = "journal.db"

// Options tune a store; the zero value is what commands use.
type Options struct {
	// Clock dates rows. Nil: [clock.Now].
	Clock clock.Func
	// Wait bounds how long Update waits for another writer when the context has
	// no nearer deadline. Zero: 30 seconds. Writers hold the database for
	// milliseconds, so longer means that one is stopped.
	Wait time.Duration

	// migrations and trace are for this package's tests.
	migrations []string
	trace      func(point string)
}

func (o Options) filled() Options {
	if o.Clock == nil {
		o.Clock = clock.Now
	}
	if o.Wait == 0 {
		o.Wait = 30 * time.Second
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	if o.trace == nil {
		o.trace = func(string) {}
	}
	return o
}

// Store is an open journal. It is safe for concurrent use.
type Store struct {
	path  string
	write *sql.DB // one connection; nil when opened read-only
	read  *sql.DB
	opt   Options
}

// Open opens the journal in dir for reading and writing, making or upgrading
// it when needed. It refuses with [ErrForeign], [ErrNewer], [ErrCorrupt] or
// [ErrReadOnly].
func Open(ctx context.Context, dir string, opt Options) (*Store, error) {
	s := &Store{path: filepath.Join(dir, File), opt: opt.filled()}
	makeRoom(dir)
	if err := s.open(ctx, dir); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.path, errors.Join(explain(err), s.Close()))
	}
	keepRoom(dir)
	return s, nil
}

func (s *Store) open(ctx context.Context, dir string) error {
	err := inspect(s.path, len(s.opt.migrations))
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(ctx, dir, s.opt); err == nil {
			err = inspect(s.path, len(s.opt.migrations))
		}
	}
	if err != nil {
		return err
	}
	if err := writable(dir, s.path); err != nil {
		return err
	}
	// A log left behind may hold a newer version than the header shows, and a
	// writer that closes would checkpoint it: look through a reader first.
	if logged(s.path) {
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	s.write = connect(s.path, modeWrite)
	s.read = connect(s.path, modeRead)
	if err := sound(ctx, s.write); err != nil {
		return err
	}
	return migrate(ctx, s.write, s.opt.migrations)
}

// OpenReadOnly opens the journal in dir for [Store.View] alone. A journal that
// does not exist yet is [fs.ErrNotExist]; an older one is [ErrOlder].
func OpenReadOnly(ctx context.Context, dir string, opt Options) (*Store, error) {
	s := &Store{path: filepath.Join(dir, File), opt: opt.filled()}
	makeRoom(dir) // a reader makes the index file too
	err := inspect(s.path, len(s.opt.migrations))
	if err == nil {
		mode := modeRead
		if !logged(s.path) && errors.Is(writable(dir, s.path), ErrReadOnly) {
			// Reading a WAL database needs an index file beside it. Where none can be
			// made and no log waits, nobody can be writing either.
			mode = modeImmutable
		}
		s.read = connect(s.path, mode)
		if err = sound(ctx, s.read); err == nil {
			err = current(ctx, s.read, len(s.opt.migrations))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.path, errors.Join(explain(err), s.Close()))
	}
	return s, nil
}

// look checks the version behind a log that was left.
func (s *Store) look(ctx context.Context) error {
	db := connect(s.path, modeRead)
	defer db.Close()
	v, err := version(ctx, db)
	if err == nil && v > len(s.opt.migrations) {
		err = fmt.Errorf("%w: it has version %d, this program knows %d", ErrNewer, v, len(s.opt.migrations))
	}
	return err
}

// Close releases the database. The last process to close it checkpoints the log.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// The ways to open the file.
var (
	modeWrite = url.Values{
		"mode":    {"rw"},
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(250)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "trusted_schema(0)", "cell_size_check(1)"},
	}
	modeRead = url.Values{
		"mode":    {"ro"},
		"_pragma": {"busy_timeout(5000)", "query_only(1)", "trusted_schema(0)", "cell_size_check(1)"},
	}
	modeImmutable = url.Values{
		"mode":      {"ro"},
		"immutable": {"1"},
		"_pragma":   {"query_only(1)", "trusted_schema(0)", "cell_size_check(1)"},
	}
	modeCreate = url.Values{
		"mode":    {"rwc"},
		"_txlock": {"immediate"},
		"_pragma": {"synchronous(FULL)", "foreign_keys(1)"},
	}
)

// connect prepares a handle; nothing is opened until it is used. A writer has
// one connection, because SQLite has one writer anyway and a second connection
// of the same process would only wait for the first.
func connect(path string, mode url.Values) *sql.DB {
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: mode.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		panic(fmt.Sprintf("journal: open driver: %v", err)) // only an unregistered driver
	}
	if mode.Get("_txlock") != "" {
		db.SetMaxOpenConns(1)
		// A commit is as durable with fdatasync(2) and waits for half as long, as it
		// writes no time stamps. Where the driver has no choice it says so; fine.
		_, _ = sqlite.Fdatasync(true)
	}
	return db
}

// sound reads every page once. The journal of a machine is a few megabytes; see
// BenchmarkOpen for what it costs.
func sound(ctx context.Context, db *sql.DB) error {
	var answer string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&answer); err != nil {
		return err
	}
	if answer != "ok" {
		return fmt.Errorf("%w: %s", ErrCorrupt, answer)
	}
	return nil
}
