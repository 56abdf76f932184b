package journal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// fill takes every byte that is left in dir.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "runaway"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// small mounts a filesystem of its own for a journal.
func small(t *testing.T, size string) place {
	t.Helper()
	p := place{t, t.TempDir()}
	if err := unix.Mount("none", p.dir, "tmpfs", 0, "mode=700,size="+size); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestFullDiskLeavesRoomForTheJournal(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	for _, part := range []string{"read", "open"} {
		p := small(t, "32m")
		p.ours()
		fill(t, p.dir)
		if said, err := child(t, part, p.dir).Output(); err != nil {
			t.Errorf("%s: %v %s", part, err, said)
		}
	}
	p := small(t, "32m")
	p.ours()
	fill(t, p.dir)
	s, err := Open(t.Context(), p.dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Update(t.Context(), func(tx *Tx) error {
		_, err := tx.Event(Event{Event: "state.moved"})
		return err
	})
	if err != nil {
		t.Errorf("write on a full disk: %v", err)
	}
}

func TestFullDiskIsCalledSo(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	p := small(t, "2m") // too small to reserve anything
	p.ours()
	fill(t, p.dir)
	_, err := Open(context.Background(), p.dir, Options{})
	if !errors.Is(err, ErrFull) {
		t.Errorf("got %v, want %v", err, ErrFull)
	}
	if err := os.Remove(filepath.Join(p.dir, "runaway")); err != nil {
		t.Fatal(err)
	}
	if said, err := child(t, "read", p.dir).Output(); err != nil {
		t.Errorf("after making room: %v %s", err, said)
	}
}
