package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// private makes a directory of the given mode below parents that nobody else can
// write to but in the sticky temporary directory itself.
func private(t testing.TB, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	for d := filepath.Dir(dir); filepath.Dir(d) != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTrust(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(t *testing.T) string
		want Fault
	}{
		{"a private directory is trusted", func(t *testing.T) string { return private(t, 0o700) }, ""},
		{"one that others can read is not", func(t *testing.T) string { return private(t, 0o750) }, Open},
		{"a file is none", func(t *testing.T) string {
			f := filepath.Join(private(t, 0o700), "f")
			if err := os.WriteFile(f, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return f
		}, NotDir},
		{"one in a directory that others can write to is not", func(t *testing.T) string {
			dir := private(t, 0o700)
			if err := os.Chmod(filepath.Dir(dir), 0o777); err != nil {
				t.Fatal(err)
			}
			return dir
		}, Below},
		{"a sticky directory above it does no harm", func(t *testing.T) string {
			dir := private(t, 0o700)
			if err := os.Chmod(filepath.Dir(dir), 0o777|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
			return dir
		}, ""},
		{"a link is judged by where it leads", func(t *testing.T) string {
			link := filepath.Join(private(t, 0o700), "link")
			if err := os.Symlink(private(t, 0o755), link); err != nil {
				t.Fatal(err)
			}
			return link
		}, Open},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Trust(tc.make(t))
			var bad *Error
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("distrusted: %v", err)
			case tc.want != "" && (!errors.As(err, &bad) || bad.What != tc.want):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTrustOfNothingIsNotExist(t *testing.T) {
	if _, err := Trust(filepath.Join(private(t, 0o700), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// A FIFO that is waited for would hang this test until its time is up.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := private(t, 0o700)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("file", at("link")), os.Mkdir(at("dir"), 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fifo", "link", "dir"} {
		if _, err := ReadFile(at(name)); !errors.Is(err, ErrIrregular) {
			t.Errorf("read %s: %v", name, err)
		}
		if f, err := OpenFile(at(name), os.O_WRONLY, 0); err == nil {
			f.Close()
			t.Errorf("opened %s for writing", name)
		}
	}
	if b, err := ReadFile(at("file")); err != nil || string(b) != "text" {
		t.Errorf("read file: %q, %v", b, err)
	}
}

func BenchmarkTrust(b *testing.B) {
	dir := private(b, 0o700)
	for b.Loop() {
		if _, err := Trust(dir); err != nil {
			b.Fatal(err)
		}
	}
}
