package upper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory is empty whatever was read of it before, and however long a name
// is that it has.
func TestEmpty(t *testing.T) {
	d := t.TempDir()
	fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	check := func(want bool) {
		t.Helper()
		if got, err := empty(fd); got != want || err != nil {
			t.Errorf("empty: %t, %v; want %t", got, err, want)
		}
	}
	check(true)
	long := filepath.Join(d, strings.Repeat("n", unix.NAME_MAX))
	must(t, os.WriteFile(long, nil, 0o600))
	check(false)
	check(false)
	must(t, os.Remove(long))
	check(true)
	for n := range 500 {
		must(t, os.WriteFile(filepath.Join(d, fmt.Sprint(n)), nil, 0o600))
	}
	check(false)
	if all, err := names(fd); err != nil || len(all) != 500 {
		t.Errorf("names: %d, %v", len(all), err)
	}
	check(false)
	for n := range 500 {
		check(false)
		must(t, os.Remove(filepath.Join(d, fmt.Sprint(n))))
	}
	check(true)
}
