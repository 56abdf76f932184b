package txn

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// abandonedTrial is a transaction whose processes are gone.
func abandonedTrial(t *testing.T) (*world, *Txn) {
	w := newWorld(t)
	x := w.trial(w.begin())
	w.ok(x.Close())
	return w, x
}

// Wherever the last record is cut off, what was there before it stands, and the
// next record takes its place.
func TestTornTail(t *testing.T) {
	w, x := abandonedTrial(t)
	name := filepath.Join(x.Dir(), logName)
	whole, err := os.ReadFile(name)
	w.ok(err)
	last := len(whole) - sector // the swapped record
	long, _, err := frame(sum{}, []byte(strings.Repeat("y", 5*sector)))
	w.ok(err)
	for what, tail := range map[string][]byte{
		"nothing of it":       nil,
		"one byte":            whole[last : last+1],
		"half a header":       whole[last : last+16],
		"a header":            whole[last : last+headerSize],
		"all but one byte":    whole[last : last+headerSize+40],
		"only zeros":          make([]byte, 3*sector),
		"its middle is zeros": append(append([]byte{}, whole[last:last+headerSize+10]...), make([]byte, sector-headerSize-10)...),
		"its head is zeros":   append(make([]byte, sector), []byte(strings.Repeat("z", 4*sector))...),
		"a long one's head":   long[:3*sector+7],
	} {
		t.Run(what, func(t *testing.T) {
			w.ok(os.WriteFile(name, append(append([]byte{}, whole[:last]...), tail...), 0o600))
			y, err := Open(x.Dir())
			if err != nil {
				t.Fatal(err)
			}
			defer y.Close()
			if y.Status() != Applying {
				t.Fatalf("status %s", y.Status())
			}
			w.ok(y.TryLock())
			w.ok(y.write(record{Kind: recSwapped}))
			w.ok(y.Reload())
			if y.Status() != Trial {
				t.Fatalf("after the next record: status %s", y.Status())
			}
		})
	}
}

// Damage before the last record is never taken for a torn tail: a transaction
// that may have changed the host must not look like one that has not.
func TestCorruptionStops(t *testing.T) {
	w, x := abandonedTrial(t)
	name := filepath.Join(x.Dir(), logName)
	whole, err := os.ReadFile(name)
	w.ok(err)
	before := w.manifest()
	for at := 0; at < len(whole)-sector; at += 61 {
		if whole[at] == 0 {
			continue // padding is not looked at
		}
		damaged := append([]byte{}, whole...)
		damaged[at] ^= 0x20
		w.ok(os.WriteFile(name, damaged, 0o600))
		_, err := Recover(context.Background(), x.Dir(), w.host(), "")
		if !errors.Is(err, ErrCorrupt) && !(at < headerSize && errors.Is(err, ErrForeign)) {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
	}
	if w.manifest() != before {
		t.Error("a corrupt file moved the host")
	}
	w.ok(os.WriteFile(name, whole, 0o600))
	if res, err := Recover(context.Background(), x.Dir(), w.host(), ""); err != nil || res.Status != Undone {
		t.Errorf("whole again: %+v, %v", res, err)
	}
}

func TestForeignAndNewerFilesAreRefused(t *testing.T) {
	write := func(t *testing.T, b []byte) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, logName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if _, err := Open(write(t, []byte(strings.Repeat("SQLite format 3 ", 100)))); !errors.Is(err, ErrForeign) {
		t.Errorf("foreign: %v", err)
	}
	newer, _, err := frame(sum{}, []byte(`{"kind":"header","header":{"format":2,"id":"apply-x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(write(t, newer)); !errors.Is(err, ErrNewer) {
		t.Errorf("newer format: %v", err)
	}
	head, s, err := frame(sum{}, []byte(`{"kind":"header","header":{"format":1,"id":"apply-x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	more, _, err := frame(s, []byte(`{"kind":"quantum"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(write(t, append(head, more...))); !errors.Is(err, ErrNewer) {
		t.Errorf("unknown record: %v", err)
	}
}

// The state directory's disk is full from the swap on. Verdict, undo and their
// records need no space.
func TestFullDiskKeepsNoVerdictFromBeingWritten(t *testing.T) {
	for _, fs := range []struct{ kind, options string }{{"tmpfs", "size=2m"}, {"ext4", ""}} {
		t.Run(fs.kind, func(t *testing.T) {
			disk := mounted(t, fs.kind, fs.options)
			w := newWorldAt(t, disk)
			before := w.manifest()
			x := w.trial(w.begin())
			fill(t, filepath.Join(disk, "hog"))
			if err := os.WriteFile(filepath.Join(disk, "one more"), []byte(strings.Repeat("x", 8192)), 0o600); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("the disk is not full: %v", err)
			}
			// Longer than what is left of the file's last block.
			left, err := x.Undo(context.Background(), w.host(), Watcher, strings.Repeat("because ", 2000))
			w.ok(err)
			if len(left) > 0 || x.Status() != Undone || w.manifest() != before {
				t.Errorf("status %s, leftovers %+v, host:\n%s", x.Status(), left, w.manifest())
			}
		})
	}
}

func mounted(t *testing.T, kind, options string) string {
	t.Helper()
	if kind == "ext4" {
		return loopExt4(t, "16M")
	}
	nstest.NewMount(t)
	at := t.TempDir()
	if err := unix.Mount(kind, at, kind, 0, options); err != nil {
		t.Fatal(err)
	}
	return at
}

// fill takes all the space there is.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{1 << 20, 4096, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, n))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// Should two verdicts ever be in a file, the first one stands.
func TestFirstVerdictStands(t *testing.T) {
	w, x := abandonedTrial(t)
	y, err := Open(x.Dir())
	w.ok(err)
	w.ok(y.TryLock())
	for _, d := range []Decision{Commit, Undo} {
		w.ok(y.write(record{Kind: recVerdict, Verdict: &Verdict{Decision: d, By: Applier}}))
	}
	w.ok(y.Close())
	res, err := Recover(context.Background(), x.Dir(), w.host(), "")
	if err != nil || res.Status != Committed || res.Did != Cleaned {
		t.Errorf("%+v, %v", res, err)
	}
}

// More leftovers than the reserve has room for are counted, not lost.
func TestManyLeftoversFitTheReserve(t *testing.T) {
	left := make([]backends.Leftover, 5000)
	for i := range left {
		left[i] = backends.Leftover{Subject: "/etc/" + strings.Repeat("x", i%200), Found: "somebody else's", Wanted: "ours", Fix: "mv"}
	}
	r := undoneRecord(left)
	if len(r.Leftovers) == 0 || len(r.Leftovers)+r.Unlisted != len(left) {
		t.Fatalf("%d listed, %d not", len(r.Leftovers), r.Unlisted)
	}
	w := newWorld(t)
	x := w.beginWith([]change.Change{})
	at := x.log.end
	w.ok(x.write(r))
	if n := x.log.end - at; n > reserve/2 {
		t.Errorf("the record takes %d bytes of %d", n, reserve)
	}
	got, unlisted := x.Leftovers()
	if len(got) != len(r.Leftovers) || unlisted != r.Unlisted {
		t.Errorf("read back %d, %d", len(got), unlisted)
	}
}
