package world

import (
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends"
)

var everywhere = []backends.Where{backends.InCandidate, backends.InControl, backends.InCut, backends.InJail}

func sh(script string) backends.Probe {
	return backends.Probe{
		Argv: []string{"/bin/sh", "-c", script}, Cwd: "/", Timeout: 20 * time.Second,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
}

func dial(addr string) backends.Probe { return backends.Probe{Dial: addr, Timeout: 5 * time.Second} }

func as(uid uint32, p backends.Probe) backends.Probe {
	p.UID, p.GID, p.Groups = uid, uid, []uint32{27}
	return p
}

func TestWorldsShowTheirFilesAndNetwork(t *testing.T) {
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			m := start(t, setup{
				Mode: mode, Staged: map[string]string{"/etc/canary-staged": "staged"},
				Listen: []string{"127.0.0.1:8080", "192.0.2.7:8080"},
			})
			for _, where := range everywhere {
				inView := where == backends.InCandidate
				if got := m.run(where, sh("cat /etc/canary-staged")); got.OK() != inView || inView && got.Output != "staged" {
					t.Errorf("staged file in %s: %+v", where, got)
				}
				for _, addr := range []string{"127.0.0.1:8080", "192.0.2.7:8080"} {
					if got := m.run(where, dial(addr)); got.OK() != inView {
						t.Errorf("daemon of the view in %s: %+v", where, got)
					}
				}
				if got := m.run(where, sh("ip -br address show eth0 | grep -o 192.0.2.7/24")); !got.OK() {
					t.Errorf("address in %s: %+v", where, got)
				}
				if got := m.run(where, sh("true")); !got.OK() {
					t.Errorf("true in %s: %+v", where, got)
				}
			}
		})
	}
}

// Two layers of the twin's files lie above each other in a candidate: what the
// view deleted must stay deleted.
func TestCandidateKeepsDeletions(t *testing.T) {
	m := start(t, setup{Deleted: []string{"/etc/hostname"}})
	if got := m.run(backends.InCandidate, sh("ls /etc/hostname")); got.Exit != 2 {
		t.Errorf("deleted file in candidate: %+v", got)
	}
	if got := m.run(backends.InControl, sh("cat /etc/hostname")); !got.OK() {
		t.Errorf("deleted file in control: %+v", got)
	}
}

func TestIdsAreTheCallers(t *testing.T) {
	m := start(t, setup{})
	for _, where := range everywhere {
		got := m.run(where, as(1000, sh("id -u; id -G; touch /tmp/mine; stat -c %u:%g /tmp/mine /etc/passwd; cat /etc/shadow")))
		want := `1000\x0a1000 27\x0a1000:1000\x0a0:0\x0acat: /etc/shadow: Permission denied\x0a`
		if got.Output != want {
			t.Errorf("in %s: got %s\nwant %s", where, got.Output, want)
		}
	}
}

func TestNoPowerAnywhere(t *testing.T) {
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			m := start(t, setup{Mode: mode})
			for _, where := range everywhere {
				for _, uid := range []uint32{0, 1000} {
					got := m.run(where, as(uid, sh("grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs|^Seccomp:' /proc/self/status | tr -d '\\t\\n'")))
					want := "CapPrm:0000000000000000CapEff:0000000000000000CapBnd:0000000000000000CapAmb:0000000000000000NoNewPrivs:1Seccomp:2"
					if got.Output != want {
						t.Errorf("uid %d in %s: %s", uid, where, got.Output)
					}
				}
			}
		})
	}
}

func TestSeveralAtOnce(t *testing.T) {
	m := start(t, setup{})
	type result struct {
		where backends.Where
		out   backends.Outcome
	}
	results := make(chan result)
	const each = 3
	for range each {
		for _, where := range everywhere {
			go func() { results <- result{where, m.run(where, sh("echo $$ >/etc/mark; cat /etc/mark; sleep 0.2"))} }()
		}
	}
	for range each * len(everywhere) {
		// In a pid namespace of its own the shell always has the same low number.
		if r := <-results; !r.out.OK() || len(r.out.Output) > len(`99\x0a`) {
			t.Errorf("in %s: %+v", r.where, r.out)
		}
	}
}

func TestHangingCanaryIsKilledWithEverythingItStarted(t *testing.T) {
	m := start(t, setup{})
	for _, where := range everywhere {
		p := sh("trap '' TERM HUP INT; setsid sleep 602 & echo begun; while :; do sleep 1; done")
		p.Timeout = 700 * time.Millisecond
		got := m.run(where, p)
		if !got.TimedOut || got.Exit != -1 || got.Took > 3*time.Second || !strings.HasPrefix(got.Output, "begun") {
			t.Errorf("in %s: %+v", where, got)
		}
	}
	if left := processes(t, "sleep\x00602"); left != nil {
		t.Errorf("still alive: %v", left)
	}
}
