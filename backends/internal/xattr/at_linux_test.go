package xattr

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Both ways of listing see the same: a symlink itself and not its target, a
// directory by its descriptor alone, a list that is longer than the first buffer,
// nothing, and no object at all.
func TestListsTheSameWithAndWithoutProc(t *testing.T) {
	d := t.TempDir()
	set := func(path, name string) {
		t.Helper()
		if err := unix.Setxattr(path, name, []byte("v"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"none", "one", "many", "a\nb \xff"} {
		if err := os.WriteFile(filepath.Join(d, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(d, "user.directory")
	set(d+"/one", "user.k")
	set(d+"/a\nb \xff", "user.odd")
	for n := range 12 {
		set(d+"/many", fmt.Sprintf("user.%s%d", strings.Repeat("k", 40), n))
	}
	if err := os.Symlink("one", d+"/link"); err != nil {
		t.Fatal(err)
	}
	dir, err := unix.Open(d, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	look := func(without bool) (seen []string) {
		was := lacking.Swap(without)
		defer lacking.Store(was)
		for _, name := range []string{"none", "one", "many", "a\nb \xff", "link", "", "nothing"} {
			all, err := All(dir, name)
			seen = append(seen, fmt.Sprintf("%q %q %v", name, all, err))
		}
		return seen
	}
	if d := cmp.Diff(look(true), look(false)); d != "" {
		t.Errorf("by /proc and by descriptor (-proc +descriptor):\n%s", d)
	}
}

func BenchmarkAllOfNone(b *testing.B) {
	d := b.TempDir()
	if err := os.WriteFile(d+"/none", nil, 0o600); err != nil {
		b.Fatal(err)
	}
	dir, err := unix.Open(d, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(dir)
	for name, without := range map[string]bool{"descriptor": false, "proc": true} {
		b.Run(name, func(b *testing.B) {
			was := lacking.Swap(without)
			defer lacking.Store(was)
			for b.Loop() {
				if _, err := All(dir, "none"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
