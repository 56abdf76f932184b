package execlog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// A full disk refuses commands and nothing else: what is recorded stays whole,
// and an undo can still open the gate.
func TestFullDisk(t *testing.T) {
	nstest.NewMount(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(disk, "edge")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Gate(dir, Open); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "before")
	if err := Gate(dir, Trial+" apply-1"); err != nil {
		t.Fatal(err)
	}
	_, whole := since(t, dir, 0)
	fill, err := os.Create(filepath.Join(disk, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = fill.Write(make([]byte, 1024))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := Gate(dir, Open); err != nil {
		t.Fatalf("open the gate on a full disk: %v", err)
	}
	_, err = Begin(dir, Intent{Argv: []string{strings.Repeat("x", 8192)}})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("Begin on a full disk = %v, want ENOSPC", err)
	}
	if _, now := since(t, dir, 0); now != whole {
		t.Errorf("half a record was left: %d bytes, %d before", now, whole)
	}
	fill.Close()
	if err := os.Remove(fill.Name()); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "after")
}
