package clock

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestNowIsOfThisBootAndAdvances(t *testing.T) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	a, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	b, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	if a.BootID != strings.TrimSpace(string(id)) {
		t.Errorf("boot id %q, the kernel says %q", a.BootID, id)
	}
	if d, ok := b.Since(a); !ok || d > time.Minute {
		t.Errorf("two readings in a row are %v apart (comparable: %v)", d, ok)
	}
	if a.At.Location() != time.UTC || a.IsZero() {
		t.Errorf("instant %+v is not in UTC or counts as never set", a)
	}
}
