package txn

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// reserve is what stays allocated behind the last record, so that whatever
// follows it, verdict and leftovers included, can be written to a full disk.
const reserve = 64 << 10

// log is the file of records, and how far it has been read.
type log struct {
	file *os.File
	last int64 // where the last record begins
	end  int64 // where the next record goes
	sum  sum
	own  bool // the last record was made durable by us
}

// read reads the whole file again and calls f with each record.
func (l *log) read(f func(record) error) error {
	b, err := io.ReadAll(io.NewSectionReader(l.file, 0, maxRecord))
	if err != nil {
		return fmt.Errorf("read %s: %w", l.file.Name(), err)
	}
	l.last, l.own = 0, false
	next := int64(0)
	l.end, l.sum, err = scan(b, func(payload []byte) error {
		var r record
		if err := json.Unmarshal(payload, &r); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		l.last, next = next, next+int64(framed(len(payload)))
		return f(r)
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", l.file.Name(), err)
	}
	return nil
}

// append makes one record durable. The caller holds the lock and has read the
// file under it.
func (l *log) append(r record) error {
	if err := l.affirm(); err != nil {
		return err
	}
	payload, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode %s record: %w", r.Kind, err)
	}
	b, next, err := frame(l.sum, payload)
	if err != nil {
		return err
	}
	err = durable("record "+string(r.Kind), func() error {
		if err := l.clear(len(b)); err != nil {
			return err
		}
		if err := l.allocate(int64(len(b))); err != nil {
			return err
		}
		if _, err := l.file.WriteAt(b, l.end); err != nil {
			return err
		}
		return datasync(l.file)
	})
	if err != nil {
		return fmt.Errorf("record %s: %w", r.Kind, err)
	}
	l.last, l.end, l.sum, l.own = l.end, l.end+int64(len(b)), next, true
	return nil
}

// affirm makes the last record durable when somebody else wrote it: who reads a
// record sees it in the kernel's memory, also when the sync of it failed. After a
// failed sync the pages count as clean, so they are written once more.
func (l *log) affirm() error {
	if l.own || l.end == 0 {
		return nil
	}
	b := make([]byte, l.end-l.last)
	if _, err := l.file.ReadAt(b, l.last); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read last record: %w", err)
	}
	err := durable("affirm", func() error {
		if _, err := l.file.WriteAt(b, l.last); err != nil {
			return err
		}
		return datasync(l.file)
	})
	if err != nil {
		return fmt.Errorf("affirm last record: %w", err)
	}
	l.own = true
	return nil
}

// clear overwrites the remains of an append that died with zeros, before a
// shorter record could leave some of them behind it. Truncating would give the
// reserve away. Remains of one sector need it not when a record of one sector
// takes their place: a sector is old or new.
func (l *log) clear(n int) error {
	fi, err := l.file.Stat()
	if err != nil || fi.Size() <= l.end || n == sector && fi.Size() <= l.end+sector {
		return err
	}
	if _, err := l.file.WriteAt(make([]byte, fi.Size()-l.end), l.end); err != nil {
		return err
	}
	return datasync(l.file)
}

// allocate makes room for n bytes and the reserve behind them. A small record
// that finds no more room is what the reserve is for.
func (l *log) allocate(n int64) error {
	err := preallocate(l.file, l.end, n+reserve)
	if errors.Is(err, errors.ErrUnsupported) || n <= reserve/2 && l.end > 0 {
		return nil
	}
	return err
}
