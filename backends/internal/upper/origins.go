package upper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/regular"
)

// origin is what the host had at a path when an upper entry for it was first
// seen.
type origin struct {
	Path change.Path `json:"path"`
	// Mark is empty for an origin. The other lines of the log only name a path.
	Mark mark `json:"mark,omitempty"`
	// TView is when the view that made the entry was mounted.
	TView int64         `json:"tview,omitempty"`
	Old   *change.Entry `json:"old,omitempty"` // nil: nothing was there
	// Certain: the host cannot have changed the path between the moment the view
	// read it and this record. Why says what stands against it.
	Certain bool   `json:"certain,omitempty"`
	Why     string `json:"why,omitempty"`
}

// mark is what a line that is no origin says about its path.
type mark string

const (
	forgetTree mark = "forget-tree" // nothing is known at or below it any more
	forgetOne  mark = "forget"      // nothing is known of it any more
	covers     mark = "covers"      // it was seen to delete what the host has below it
	uncovers   mark = "uncovers"    // it does so no longer
)

// originLog is the append-only file of origins, held under its lock.
//
// Each line is a CRC-32C in hex, a space and a JSON array: one batch, written
// and synced at once. A last batch that a crash cut short never happened and is
// overwritten; a bad one before the end is damage, and everything derived from
// it would be a guess.
type originLog struct {
	f     *os.File
	known map[change.Path]origin
	cover map[change.Path]bool // paths marked as covering
	size  int64                // of the intact part
	fresh []origin
}

// castagnoli is made when it is first used: 200 µs (amd64) of every start of the
// program otherwise, and this package is initialised before exec runs.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// openOrigins locks, reads and, where torn, repairs the log of an environment.
func openOrigins(dir string) (*originLog, error) {
	name := filepath.Join(dir, "origins.log")
	f, err := regular.Open(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open origins: %w", err)
	}
	l := &originLog{f: f, known: map[change.Path]origin{}, cover: map[change.Path]bool{}}
	if err := lock(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock origins: %w", err)
	}
	if err := l.read(); err != nil {
		f.Close()
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return l, nil
}

func (l *originLog) read() error {
	b, err := io.ReadAll(l.f)
	if err != nil {
		return err
	}
	for n := 1; len(b) > 0; n++ {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		batch, err := parseBatch(line)
		if err != nil || !whole {
			if len(rest) > 0 {
				return fmt.Errorf("line %d: %w", n, err)
			}
			return nil // torn: the write that made it never returned
		}
		for _, o := range batch {
			l.take(o)
		}
		l.size += int64(len(line)) + 1
		b = rest
	}
	return nil
}

func parseBatch(line []byte) ([]origin, error) {
	sum, body, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return nil, errors.New("no checksum")
	}
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if err != nil {
		return nil, fmt.Errorf("checksum: %w", err)
	}
	if crc32.Checksum(body, castagnoli()) != uint32(want) {
		return nil, errors.New("checksum does not match")
	}
	var batch []origin
	err = json.Unmarshal(body, &batch)
	return batch, err
}

func (l *originLog) take(o origin) {
	switch o.Mark {
	case covers:
		l.cover[o.Path] = true
	case uncovers:
		delete(l.cover, o.Path)
	case forgetOne:
		delete(l.known, o.Path)
	case forgetTree:
		below := func(p change.Path) bool { return within(string(p), string(o.Path)) }
		maps.DeleteFunc(l.known, func(p change.Path, _ origin) bool { return below(p) })
		maps.DeleteFunc(l.cover, func(p change.Path, _ bool) bool { return below(p) })
	default:
		l.known[o.Path] = o
	}
}

// add notes a record that flush will write.
func (l *originLog) add(o origin) {
	l.take(o)
	l.fresh = append(l.fresh, o)
}

// flush makes what was added durable, after the intact part of the file.
func (l *originLog) flush() error {
	if len(l.fresh) == 0 {
		return nil
	}
	body, err := json.Marshal(l.fresh)
	if err != nil {
		return fmt.Errorf("record origins: %w", err)
	}
	line := fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, castagnoli()), body)
	// Cut first: a torn tail longer than what follows must not survive behind it.
	if err := l.f.Truncate(l.size); err != nil {
		return fmt.Errorf("cut origins: %w", err)
	}
	if _, err := l.f.WriteAt(line, l.size); err != nil {
		return fmt.Errorf("record origins: %w", err)
	}
	if err := l.f.Sync(); err != nil {
		return fmt.Errorf("sync origins: %w", err)
	}
	l.size += int64(len(line))
	l.fresh = nil
	return nil
}

func (l *originLog) close() error { return l.f.Close() }

// Forget drops what is known of the paths and of everything below them; the
// next record of such a path starts anew. [Remove] and [Settle] do it
// themselves, after the entries are gone: a record without an entry is at worst
// a false conflict, an entry without its record would get a wrong base.
func Forget(dir string, paths []change.Path) error {
	l, err := openOrigins(dir)
	if err != nil {
		return err
	}
	defer l.close()
	for _, p := range paths {
		l.add(origin{Path: p, Mark: forgetTree})
	}
	return l.flush()
}
