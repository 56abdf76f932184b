package idle

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

var kept = "variable" // in a writable mapping, which must stay

// fileRSS returns how much of files is mapped, in kB.
func fileRSS(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTrim(t *testing.T) {
	kept += " kept"
	timer := &Timer{pages: readOnly()}
	if len(timer.pages) < 2 {
		t.Fatalf("found %d parts of the program", len(timer.pages))
	}
	before := fileRSS(t)
	timer.trim()
	after := fileRSS(t)
	if after >= before {
		t.Errorf("%d kB of files are mapped, %d before", after, before)
	}
	if kept != "variable kept" {
		t.Errorf("a variable is %q", kept)
	}
}

func TestTimerFires(t *testing.T) {
	timer := New()
	defer timer.t.Stop()
	timer.Touch()
	if !timer.t.Stop() {
		t.Error("the timer was not running")
	}
}
