package nettwin

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestOwnersInsideAreThoseOfTheHost: a firewall that refuses one user refuses the
// user of that number in a view, whose ids are others of the machine, and no
// other one. Each kind of table has its own rule.
func TestOwnersInsideAreThoseOfTheHost(t *testing.T) {
	nstest.Require(t, nstest.UserNS, nstest.Tool("nsenter"), nstest.Tool("bash"))
	const open = "exec 3<>/dev/tcp/203.0.113.80/80 && head -c 9 <&3"
	for name, rules := range map[string]string{
		"nft":      "table inet o {\nchain out {\ntype filter hook output priority 0;\nmeta skuid 1000 tcp dport 80 reject with tcp reset\n}\n}\n",
		"iptables": "iptables -A OUTPUT -p tcp --dport 80 -m owner --uid-owner 1000 -j REJECT --reject-with tcp-reset",
		"legacy":   "iptables-legacy -A OUTPUT -p tcp --dport 80 -m owner --uid-owner 1000 -j REJECT --reject-with tcp-reset",
	} {
		t.Run(name, func(t *testing.T) {
			l := firewalled(t, rules)
			ns, process := nstest.Shifted(t)
			pid := strconv.Itoa(process)
			var err error
			l.inside, err = l.Hold("inside", int(ns.Fd()))
			must(t, err)
			must(t, l.host.Do(func() (err error) {
				l.twin, err = Mirror(t.Context(), int(ns.Fd()), Options{IDShift: nstest.Shift, Stderr: testWriter{t}})
				return err
			}))
			twin := l.twin
			t.Cleanup(func() { must(t, twin.Close()) })
			for id, want := range map[uint32]string{1000: "refused", 1001: "192.0.2.2"} {
				n := strconv.Itoa(int(id))
				out, _ := exec.Command("nsenter", "-t", pid, "-U", "-n", "-S", n, "-G", n, "bash", "-c", open).CombinedOutput()
				if !strings.Contains(string(out), want) {
					t.Errorf("user %d inside: %q, want %q", id, out, want)
				}
				real := exec.Command("bash", "-c", open)
				real.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
				var text strings.Builder
				real.Stdout, real.Stderr = &text, &text
				_ = l.host.Do(real.Run)
				if !strings.Contains(text.String(), want) {
					t.Errorf("user %d of the host: %q, want %q", id, text.String(), want)
				}
			}
		})
	}
}
