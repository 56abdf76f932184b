package regular

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A FIFO that is waited for would hang this test until its time is up.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("text"), 0o600), syscall.Mkfifo(at("fifo"), 0o600),
		os.Symlink("file", at("link")), os.Mkdir(at("dir"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fifo", "link", "dir"} {
		if _, err := Read(at(name)); !errors.Is(err, ErrIrregular) {
			t.Errorf("read %s: %v", name, err)
		}
		if f, err := Open(at(name), os.O_WRONLY|os.O_APPEND, 0); err == nil {
			f.Close()
			t.Errorf("opened %s for writing", name)
		}
	}
	if b, err := Read(at("file")); err != nil || string(b) != "text" {
		t.Errorf("read file: %q, %v", b, err)
	}
	f, err := Open(at("new"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
