package linuxns

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// asked is a canary that prints by which link of the server it was answered.
func asked(addr string) backends.Probe {
	p := shell("exec 3<>/dev/tcp/" + addr + "/80 && cat <&3")
	p.Argv[0], p.Timeout = "/bin/bash", 3*time.Second
	return p
}

const server4, server6 = "203.0.113.80", "2001:db8:80::80"

// TestCandidateGoesTheViewsWay: what the inside does to its routes is the way that
// a candidate takes, and the host's network never shows another one.
func TestCandidateGoesTheViewsWay(t *testing.T) {
	uplinks(t)
	before := network(t)
	e := newEnv(t)
	for _, row := range []struct{ set, v4, v6 string }{
		{"true", "one", "one"},
		{"ip route replace default via 192.0.2.254; ip -6 route replace default via 2001:db8:1::fe", "three", "three"},
		{"ip route replace default via 198.51.100.1; ip -6 route replace default via 2001:db8:2::1", "two", "two"},
		{"ip route add default via 192.0.2.254 table 77; ip rule add pref 77 to " + server4 + " lookup 77", "three", "two"},
	} {
		e.must("sh", "-ec", row.set)
		for addr, want := range map[string]string{server4: row.v4, server6: row.v6} {
			if got := e.canary(backends.InCandidate, asked(addr)); !got.OK() || got.Output != want+`\x0a` {
				t.Errorf("%s after %q: %+v, want %s", addr, row.set, got, want)
			}
			for _, where := range []backends.Where{backends.InControl, backends.InJail} {
				if got := e.canary(where, asked(addr)); got.Output != `one\x0a` {
					t.Errorf("%s in %s after %q: %+v", addr, where, row.set, got)
				}
			}
		}
	}
	if len(tagged(t)) == 0 {
		t.Error("nothing of ours is on the host, so its routes must have been used")
	}
	if err := e.view().Reset(t.Context(), backends.Reset{Network: true}); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, network(t)); diff != "" {
		t.Errorf("after a reset of the network (-before +after):\n%s", diff)
	}
	e.must("sh", "-c", "ip route replace default via 192.0.2.254")
	if got := e.canary(backends.InCandidate, asked(server4)); got.Output != `three\x0a` {
		t.Errorf("with another twin: %+v", got)
	}
	if err := e.view().Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, network(t)); diff != "" {
		t.Errorf("after discard (-before +after):\n%s", diff)
	}
}

// TestFailuresThatProveSomething and those that do not: a dead gateway is the
// change's fault, what the host cannot be made to do is not.
func TestFailuresThatProveSomething(t *testing.T) {
	for _, row := range []struct {
		name, view, host string
		unproven         string // a part of what the world could not do; "" when it could
	}{
		{name: "a dead gateway", view: "ip route replace default via 192.0.2.77"},
		{name: "no route", view: "ip route del default"},
		{name: "a rule that takes everything", view: "ip rule add pref 9 blackhole"},
		{name: "a link that is down on the host", view: "ip route replace default via 198.51.100.1", host: "ip link set eth1 down", unproven: "eth1"},
		{name: "an address that the host lacks", view: "ip address add 192.0.2.99/24 dev eth0; ip route replace default via 192.0.2.1 src 192.0.2.99", unproven: "192.0.2.99"},
	} {
		t.Run(row.name, func(t *testing.T) {
			uplinks(t)
			e := newEnv(t)
			e.must("sh", "-ec", row.view)
			if row.host != "" {
				run(t, "sh", "-ec", row.host)
			}
			got := e.canary(backends.InCandidate, asked(server4))
			if got.OK() {
				t.Fatalf("%+v", got)
			}
			named := slices.ContainsFunc(got.Unproven, func(s string) bool { return strings.Contains(s, row.unproven) })
			if row.unproven == "" && got.Unproven != nil || row.unproven != "" && !named {
				t.Errorf("unproven: %q, want %q", got.Unproven, row.unproven)
			}
		})
	}
}

// TestFirewallsThatAskTooMuch: a filter of the host's that looks at the way back, or
// at who sends, sees something else of a view's traffic than of the host's own. For
// the first a candidate's outcome says so. For the second the control view fails
// likewise, and the outcome against the host says that it proves nothing either.
func TestFirewallsThatAskTooMuch(t *testing.T) {
	uplinks(t)
	run(t, "nft", `
table inet asks {
	chain pre {
		type filter hook prerouting priority -290
		meta nfproto ipv6 fib saddr . mark . iif oif missing drop
	}
	chain out {
		type filter hook output priority 0
		meta skuid != 1000 ip daddr `+server4+` reject
	}
}`)
	e := newEnv(t)
	if got := e.canary(backends.InCandidate, asked(server6)); !got.OK() {
		t.Errorf("the host's own way: %+v", got)
	}
	e.must("ip", "-6", "route", "replace", "default", "via", "2001:db8:2::1")
	got := e.canary(backends.InCandidate, asked(server6))
	if got.OK() || !slices.ContainsFunc(got.Unproven, func(s string) bool { return strings.Contains(s, "inet asks chain pre") }) {
		t.Errorf("another interface: %+v", got)
	}
	p := asked(server4)
	p.UID, p.GID = 1000, 1000
	for _, where := range []backends.Where{backends.InCandidate, backends.InControl, backends.InJail} {
		got := e.canary(where, p)
		if got.OK() || (len(got.Unproven) > 0) != (where == backends.InJail) {
			t.Errorf("in %s: %+v", where, got)
		}
	}
}

// TestNoVerdictWithoutATwin: what the inside changed is gone with a twin that was
// lost, and a twin without its relay has no way out.
func TestNoVerdictWithoutATwin(t *testing.T) {
	uplinks(t)
	e := newEnv(t)
	e.must("ip", "route", "replace", "default", "via", "192.0.2.77")
	e.kill()
	for range 2 { // the second with a holder that lives
		_, err := e.view().Canary(t.Context(), backends.InCandidate, asked(server4))
		if err == nil || !strings.Contains(err.Error(), "network twin lost: netsandbox reset test --network") {
			t.Errorf("after the holder was killed: %v", err)
		}
		e.must("true")
	}
	if err := e.view().Reset(t.Context(), backends.Reset{Network: true}); err != nil {
		t.Fatal(err)
	}
	if got := e.canary(backends.InCandidate, asked(server4)); !got.OK() {
		t.Errorf("with a new twin: %+v", got)
	}
}

// TestLanesAreMadeAgain: a network manager that removes what it did not make is no
// reason for a verdict.
func TestLanesAreMadeAgain(t *testing.T) {
	uplinks(t)
	e := newEnv(t)
	e.must("ip", "route", "replace", "default", "via", "198.51.100.1")
	for range 2 {
		if got := e.canary(backends.InCandidate, asked(server4)); got.Output != `two\x0a` {
			t.Errorf("%+v", got)
		}
		run(t, "sh", "-c", "ip rule flush protocol 91; ip route flush table all proto 91")
		if left := tagged(t); len(left) != 0 {
			t.Fatalf("the manager left %+v", left)
		}
	}
}

// TestKilledHoldersLeaveNothing: whoever comes next takes it away, here or in
// another environment, and whether or not that has a holder.
func TestKilledHoldersLeaveNothing(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, dead, other *env){
		"tidy": func(t *testing.T, dead, _ *env) {
			gone, err := dead.b.Tidy(t.Context(), nil)
			if err != nil || !slices.ContainsFunc(gone, func(r backends.Resource) bool { return r.Kind == "rule" }) ||
				!slices.ContainsFunc(gone, func(r backends.Resource) bool { return r.Kind == "route" }) {
				t.Errorf("%+v, %v", gone, err)
			}
		},
		"the next holder":           func(_ *testing.T, dead, _ *env) { dead.must("true") },
		"discard":                   func(t *testing.T, dead, _ *env) { discard(t, dead) },
		"sweep":                     func(t *testing.T, dead, _ *env) { sweepAll(t, dead) },
		"another's next holder":     func(_ *testing.T, _, other *env) { other.kill(); other.must("true") },
		"a command beside a holder": func(t *testing.T, _, other *env) { other.must("true") },
	} {
		t.Run(name, func(t *testing.T) {
			uplinks(t)
			before := network(t)
			dead, other := newEnv(t), newEnv(t)
			dead.must("sh", "-c", "ip route replace default via 198.51.100.1; ip -6 route replace default via 2001:db8:2::1")
			dead.live()
			for _, addr := range []string{server4, server6} {
				if got := dead.canary(backends.InCandidate, asked(addr)); got.Output != `two\x0a` {
					t.Errorf("%+v", got)
				}
			}
			dead.kill()
			if len(tagged(t)) == 0 {
				t.Fatal("a killed holder leaves nothing anyway")
			}
			next(t, dead, other)
			if diff := gocmp.Diff(before, network(t)); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
}

func discard(t *testing.T, e *env) {
	t.Helper()
	if err := e.view().Discard(t.Context()); err != nil {
		t.Error(err)
	}
}

// sweepAll gives back what create said to be the environment's.
func sweepAll(t *testing.T, e *env) {
	t.Helper()
	kinds := map[string]bool{}
	for _, r := range e.made.Resources {
		kinds[r.Kind] = true
		if err := e.b.Sweep(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	if !kinds["lanes"] || !kinds["cgroup"] {
		t.Errorf("resources %+v", e.made.Resources)
	}
}

// TestLanesOfTheLivingStay while another's are removed.
func TestLanesOfTheLivingStay(t *testing.T) {
	uplinks(t)
	dead, living := newEnv(t), newEnv(t)
	for _, e := range []*env{dead, living} {
		e.must("ip", "route", "replace", "default", "via", "198.51.100.1")
		if got := e.canary(backends.InCandidate, asked(server4)); got.Output != `two\x0a` {
			t.Errorf("%+v", got)
		}
	}
	both := len(tagged(t))
	dead.kill()
	if _, err := dead.b.Tidy(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := len(tagged(t)); n == 0 || n >= both {
		t.Errorf("%d of %d objects are left", n, both)
	}
	if got := living.canary(backends.InCandidate, asked(server4)); got.Output != `two\x0a` {
		t.Errorf("the living: %+v", got)
	}
}

// TestRelayDiesUnderACanary: the canary's failure is the relay's.
func TestRelayDiesUnderACanary(t *testing.T) {
	uplinks(t)
	e := newEnv(t)
	e.live()
	relay := e.relay()
	p := shell("exec 3<>/dev/tcp/" + server4 + "/80; sleep 1000")
	p.Argv[0], p.Timeout = "/bin/bash", 3*time.Second
	done := make(chan backends.Outcome, 1)
	go func() {
		out, _ := e.view().Canary(t.Context(), backends.InCandidate, p)
		done <- out
	}()
	until(t, "the canary runs", func() bool { return alive("sleep\x001000") > 1 })
	if err := unix.Kill(relay, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	out := <-done
	if out.OK() || len(out.Unproven) == 0 {
		t.Errorf("%+v", out)
	}
	if _, err := e.view().Canary(t.Context(), backends.InCandidate, p); err == nil {
		t.Error("another canary ran without a relay")
	}
	if !e.status().TwinLost {
		t.Error("the twin is not called lost")
	}
}

// relay finds the process that carries the view's traffic.
func (e *env) relay() int {
	e.t.Helper()
	pids, err := processes()
	if err != nil {
		e.t.Fatal(err)
	}
	holder := e.status().Holder
	for _, pid := range pids {
		if parent(pid) == holder && carries(pid) {
			return pid
		}
	}
	e.t.Fatal("no relay")
	return 0
}

// TestPingByEitherSocket: whatever the host's setting, what a view sends goes out.
func TestPingByEitherSocket(t *testing.T) {
	uplinks(t)
	nstest.Require(t, nstest.Tool("ping"))
	e := newEnv(t)
	for _, setting := range []string{"1 0", "0 2147483647"} {
		run(t, "sh", "-c", "echo "+setting+" >/proc/sys/net/ipv4/ping_group_range")
		if got := e.canary(backends.InCandidate, shell("exec ping -c 1 -W 2 192.0.2.1")); !got.OK() {
			t.Errorf("in a view with %s: %+v", setting, got)
		}
	}
}
