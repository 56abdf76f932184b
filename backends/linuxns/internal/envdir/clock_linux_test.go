package envdir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a script did two milliseconds before a command is certainly before it,
// where the kernel dates files exactly; anywhere, what it does afterwards is not.
func TestStampTellsBeforeFromAfter(t *testing.T) {
	dir := t.TempDir()
	d := Dir(dir)
	host := filepath.Join(dir, "host")
	change := func() int64 {
		if err := os.WriteFile(host, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(host, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ctim.Nano()
	}
	exact := exactTimes(t, change)
	for range 50 {
		before := change()
		for begun := time.Now(); time.Since(begun) < 2*time.Millisecond; { // shorter than a timer would wait
		}
		c, err := d.Stamp()
		if err != nil {
			t.Fatal(err)
		}
		if exact && before >= c.Time {
			t.Fatalf("a change at %d is in doubt at %d", before, c.Time)
		}
		if after := change(); after < c.Time {
			t.Fatalf("a change at %d, after the stamp, is said to be before %d", after, c.Time)
		}
	}
}

// exactTimes reports multigrain timestamps (Linux 6.13): two changes within a
// tick that were both read have different times.
func exactTimes(t *testing.T, change func() int64) bool {
	t.Helper()
	same := 0
	for range 20 {
		if a, b := change(), change(); a == b {
			same++
		}
	}
	return same == 0
}
