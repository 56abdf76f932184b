package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest/killpoint"
)

// A second environment's view has looked a file up and keeps it. The first one's
// apply is killed, with its keeper, all along its way; whenever the two see
// different files, the second environment says so, before and after recovery.
func TestStaleViewIsNoticedAfterAnyCrash(t *testing.T) {
	w := newCrashWorld(t)
	w.must("create", "other", "--base", w.base, "--capture-connections=false")
	t.Cleanup(func() { w.run("discard", "other", "--yes") })
	conf := filepath.Join(w.base, "d/conf")
	prepare := func() {
		t.Helper()
		w.must("reset", "other", "--all", "--yes", "--stop")
		w.must("exec", "other", "--detach", "--", "sleep", "1000")
		w.must("exec", "other", "--", "cat", conf)
		w.exercise()
		w.must("check", "e")
		w.must("plan", "e")
	}
	apply := func() []string { return []string{"apply", "e", "--yes"} }
	apart := 0
	holds := func(when string) {
		t.Helper()
		host, err := os.ReadFile(conf)
		if err != nil {
			t.Fatal(err)
		}
		if w.must("exec", "other", "--", "cat", conf) == string(host) {
			return
		}
		apart++
		if said := w.must("status", "other"); !strings.Contains(said, "stale view: "+conf+": ") {
			t.Errorf("%s the view shows another file than the host, and status says\n%s", when, said)
		}
	}
	prepare()
	steps, err := killpoint.Trace(w.command(apply()...))
	if err != nil {
		t.Fatal(err)
	}
	holds("after a commit")
	w.patiently("rollback", w.settled().ID, "--yes")
	killed := 0
	for n := 1; n <= len(steps); n += 7 {
		prepare()
		reached, err := killpoint.Kill(w.command(apply()...), n, killpoint.After, w.strike(dieBoth))
		if !reached {
			t.Logf("step %d was not reached: %v", n, err)
		} else {
			killed++
		}
		holds("after a crash")
		if last := w.settled(); last.Status == "committed" {
			holds("after recovery")
			w.patiently("rollback", last.ID, "--yes")
		}
		holds("after the host was put back")
	}
	if killed == 0 || apart < 3 {
		t.Errorf("killed at %d of %d steps, and the two differed %d times: nothing was shown", killed, len(steps), apart)
	}
}
