package nstest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestLackingTool is run in a child by the tests below; alone it is the proof
// that a missing ability skips.
func TestLackingTool(t *testing.T) {
	if os.Getenv("NSTEST_LACKING") == "" {
		return
	}
	nstest.Require(t, nstest.Tool("no-such-program-a"))
}

// TestLackingOther gives the last line a second reason.
func TestLackingOther(t *testing.T) {
	if os.Getenv("NSTEST_LACKING") == "" {
		return
	}
	nstest.Require(t, nstest.Tool("no-such-program-b"))
}

func child(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-test.run=^TestLacking"}, args...)...)
	cmd.Env = append(os.Environ(), "NSTEST_LACKING=1", "NSTEST_SUMMARY="+filepath.Join(t.TempDir(), "summary"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestMissingAbilitySkipsLoudly(t *testing.T) {
	out, err := child(t)
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	want := "nstest: 2 tests skipped (no no-such-program-a, no no-such-program-b)"
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("last line %q, want %q", last, want)
	}
}

func TestMissingAbilityFailsWhenRequired(t *testing.T) {
	out, err := child(t, "-nstest.require")
	if err == nil {
		t.Fatalf("child passed:\n%s", out)
	}
	if want := "needs tool no-such-program-a"; !strings.Contains(out, want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
	if strings.Contains(out, "skipped (") {
		t.Errorf("a failure was counted as a skip:\n%s", out)
	}
}

func TestSummaryFileCollectsLines(t *testing.T) {
	name := filepath.Join(t.TempDir(), "summary")
	for range 2 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestLacking")
		cmd.Env = append(os.Environ(), "NSTEST_LACKING=1", "NSTEST_SUMMARY="+name)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("child: %v\n%s", err, out)
		}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "nstest: 2 tests skipped"); n != 2 {
		t.Errorf("%d lines in the summary, want 2:\n%s", n, b)
	}
}

func TestDifference(t *testing.T) {
	got := nstest.Difference("a\nb\nb\nc\n", "b\nc\nd\n")
	if d := cmp.Diff([]string{"+ d", "- a", "- b"}, got); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}
