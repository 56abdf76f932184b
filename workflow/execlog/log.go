package execlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/workflow/clock"
)

const logFile = "exec.log"

// Run is a command that may run now. It holds the environment's lock shared.
type Run struct {
	ID      string
	env     *envDir
	lock    *Lock
	durable func() error
}

// Begin records that a command is about to run in the environment of a
// directory. When it returns, the record is durable and no trial can begin
// before [Run.End] or the end of this process. It refuses with [ErrTrial],
// [ErrGone] or [ErrBusy].
func Begin(dir string, i Intent) (*Run, error) {
	r, err := Start(dir, i)
	if err != nil {
		return nil, err
	}
	if err := r.Durable(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// Start is [Begin] without the disk: the record is written, the log locked, until
// [Run.Durable] or [Run.End]. A caller that does something in between does
// nothing that may take long, and does not run the command.
func Start(dir string, i Intent) (*Run, error) {
	lock, err := EnvLock(dir, Shared, false)
	if err != nil {
		return nil, err
	}
	r := &Run{lock: lock}
	if err := r.begin(dir, i); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *Run) begin(dir string, i Intent) error {
	now, err := clock.Now()
	if err != nil {
		return err
	}
	if r.env, err = openEnv(dir); err != nil {
		return err
	}
	f, at, err := r.env.append(func(at int64) (Record, error) {
		if err := r.env.passable(); err != nil {
			return Record{}, err
		}
		r.ID = strconv.FormatInt(at, 10)
		return i.record(r.ID, os.Getpid(), now), nil
	})
	if err != nil {
		return err
	}
	r.durable = sync.OnceValue(func() error {
		defer f.Close()
		if err := datasync(f); err != nil {
			return retract(f, at, err)
		}
		return nil
	})
	return nil
}

// Durable puts the record on the disk. Where that fails it is taken back, and the
// command must not run.
func (r *Run) Durable() error { return r.durable() }

// End records how the command ended and releases the environment. The record is
// not synced: losing it in a power cut loses nothing that a decision rests on.
func (r *Run) End(status int) error {
	if r.Durable() != nil {
		return r.close() // it never began
	}
	now, err := clock.Now()
	if err == nil {
		var f *os.File
		f, _, err = r.env.append(func(int64) (Record, error) {
			return Record{ID: r.ID, What: end, Status: status, Instant: now}, nil
		})
		if err == nil {
			err = f.Close()
		}
	}
	return errors.Join(err, r.close())
}

func (r *Run) close() error {
	errs := []error{r.lock.Close()}
	if r.env != nil {
		errs = append(errs, r.env.Close())
	}
	return errors.Join(errs...)
}

// append adds one record, made by fn at the position it will have, under the
// log's lock, which is the caller's until it closes the log.
func (e *envDir) append(fn func(at int64) (Record, error)) (f *os.File, at int64, err error) {
	f, err = e.openLog(os.O_RDWR|os.O_APPEND|os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return nil, 0, err
	}
	if at, err = write(f, fn); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, at, nil
}

// write writes one record at the end of the locked log.
func write(f *os.File, fn func(at int64) (Record, error)) (at int64, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	at = st.Size()
	r, err := fn(at)
	if err != nil {
		return 0, err
	}
	line, err := r.line()
	if err != nil {
		return 0, err
	}
	if line, err = afterTorn(f, at, line); err != nil {
		return 0, err
	}
	if _, err = f.Write(line); err != nil {
		return 0, retract(f, at, err)
	}
	return at, nil
}

// retract takes a record back that could not be written. A full disk may have
// taken half of the line. Nobody has seen it: the lock is still ours.
func retract(f *os.File, at int64, err error) error {
	return errors.Join(fmt.Errorf("append to %s: %w", logFile, err), f.Truncate(at))
}

// afterTorn starts a new line where a power cut left half of one. The torn part
// stays: its length may have been folded into a state already.
func afterTorn(f *os.File, at int64, line []byte) ([]byte, error) {
	if at == 0 {
		return line, nil
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], at-1); err != nil {
		return nil, fmt.Errorf("read %s: %w", logFile, err)
	}
	if last[0] == '\n' {
		return line, nil
	}
	return append([]byte{'\n'}, line...), nil
}

// Length returns how long the log is. A log that was never written is empty.
func Length(dir string) (int64, error) {
	var n int64
	err := readLog(dir, func(_ *os.File, size int64) error {
		n = size
		return nil
	})
	return n, err
}

// Since returns the records from an offset on, and the offset to ask from next,
// which is the [Length] at that moment.
func Since(dir string, offset int64) (records []Record, next int64, err error) {
	next = offset
	err = readLog(dir, func(f *os.File, size int64) error {
		if size < offset {
			return fmt.Errorf("%s has %d bytes, %d were there before", logFile, size, offset)
		}
		if f == nil {
			return nil
		}
		b, err := io.ReadAll(io.NewSectionReader(f, offset, size-offset))
		if err != nil {
			return err
		}
		for line := range bytes.SplitSeq(b, []byte{'\n'}) {
			if len(line) > 0 {
				records = append(records, parse(line))
			}
		}
		next = size
		return nil
	})
	if err != nil {
		return nil, offset, fmt.Errorf("read exec log: %w", err)
	}
	return records, next, nil
}

// readLog calls fn with the log while nobody appends, so that an unfinished
// line is a torn one and not one that is just being written.
func readLog(dir string, fn func(f *os.File, size int64) error) error {
	e, err := openEnv(dir)
	if err != nil {
		return err
	}
	defer e.Close()
	f, err := e.openLog(os.O_RDONLY, unix.LOCK_SH)
	if errors.Is(err, fs.ErrNotExist) {
		return fn(nil, 0)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return fn(f, st.Size())
}

// openLog opens the log and takes its lock, which lasts until it is closed.
// Holders of this lock write one line, so it is waited for.
func (e *envDir) openLog(flags, how int) (*os.File, error) {
	f, err := e.open(logFile, flags)
	if err != nil {
		return nil, err
	}
	if err := flock(f, how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", logFile, err)
	}
	return f, nil
}
