package linuxns

import (
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestPingThatTheJailCannot: a canary on the host is in none of its user's groups,
// where it has a user namespace, and without any capability everywhere. That it
// cannot ping for that is told, whether or not the command says so; that nobody
// answers is a failure like any other.
func TestPingThatTheJailCannot(t *testing.T) {
	nstest.Require(t, nstest.Tool("ping"))
	outside(t)
	const (
		nobody = "1 0"
		all    = "0 2147483647"
	)
	ping := shell("ping -n -c 1 -W 1 192.0.2.1")
	quiet := shell("ping -n -c 1 -W 1 192.0.2.1 >/dev/null 2>&1")
	silence := shell("ping -n -c 1 -W 1 192.0.2.77")
	for _, row := range []struct {
		name, mode, groups string
		probe              backends.Probe
		ok, told           bool
	}{
		{"shifted, where anybody may", "shifted", all, ping, false, true},
		{"without a word", "shifted", all, quiet, false, true},
		{"shifted, where nobody may", "shifted", nobody, ping, false, true},
		{"shifted, and no ping at all", "shifted", all, shell("exit 7"), false, false},
		{"with the host's own ids, where anybody may", "caps", all, ping, true, false},
		{"and nobody answers", "caps", all, silence, false, false},
		{"with the host's own ids, where nobody may", "caps", nobody, ping, false, true},
		{"and no ping at all", "caps", nobody, shell("exit 7"), false, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			run(t, "sh", "-c", "echo "+row.groups+" >/proc/sys/net/ipv4/ping_group_range")
			e := newEnv(t, func(s *backends.Spec) { s.Mode = row.mode })
			got := e.canary(backends.InJail, row.probe)
			if got.OK() != row.ok || strings.Contains(strings.Join(got.Unproven, ";"), "ping_group_range") != row.told {
				t.Errorf("%+v", got)
			}
			if got := e.canary(backends.InControl, ping); !got.OK() {
				t.Errorf("in the control view: %+v", got)
			}
		})
	}
}
