package nettwin

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestTwinOfAUserNamespace mirrors into a namespace that a shifted user
// namespace owns, as a view has it: its root may change what is there, except
// what is the relay's.
func TestTwinOfAUserNamespace(t *testing.T) {
	l := newLab(t, nstest.UserNS, nstest.NFT, nstest.Tool("nsenter"), nstest.Tool("sleep"), nstest.Tool("ip"), nstest.Tool("nft"), nstest.Tool("sysctl"))
	echo(t, l.server, "tcp", ":80")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	as := l.mirrorShifted(t, Options{Relay: []uint16{7890}})
	inside := func(line string) (string, error) { return as("0", line) }
	l.seenAs(t, "tcp", "203.0.113.80:80")
	if out, err := inside("sysctl -n net.ipv4.ping_group_range"); err != nil || out != "0\t2147483646\n" {
		t.Errorf("groups that may use ping sockets: %q, %v; want all", out, err)
	}

	for _, line := range []string{
		"ip route replace default via 192.0.2.254", "ip link set eth1 down", "ip addr add 10.0.0.1/8 dev eth0", "ip rule add pref 9 lookup 7",
		"nft flush ruleset", "nft add table ip mine", "sysctl -qw net.ipv4.conf.eth0.rp_filter=0", "ip link add v0 type veth peer name v1",
	} {
		if out, err := inside(line); err != nil {
			t.Errorf("root of the user namespace: %s: %v: %s", line, err, out)
		}
	}
	for _, line := range []string{"nft delete table inet " + tableName, "nft add rule inet " + tableName + " output accept", "ip tuntap add eth0 mode tap"} {
		if out, err := inside(line); err == nil {
			t.Errorf("root of the user namespace could: %s: %s", line, out)
		}
	}
	if got, err := l.ask("127.0.0.1:7890"); got != "host-proxy" || err != nil {
		t.Errorf("after the flush: got %q, %v", got, err)
	}
	got := strings.Join(l.lines(t), "\n")
	for _, want := range []string{
		"ip link set eth1 down", "ip link add v0", "ip address add 10.0.0.1/8 dev eth0", "ip route replace default", "ip rule add pref 9",
		"nft add table ip mine", "sysctl -w net.ipv4.conf.eth0.rp_filter",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in the difference:\n%s", want, got)
		}
	}
	must(t, l.twin.Reset(t.Context()))
	l.seenAs(t, "tcp", "203.0.113.80:80")
}

// mirrorShifted mirrors into a namespace that a user namespace owns whose user 0
// is the kernel's 2^31. The function runs a command line there as a user of it.
func (l *testLab) mirrorShifted(t *testing.T, opt Options) func(uid, line string) (string, error) {
	t.Helper()
	ns, process := nstest.Shifted(t)
	pid := strconv.Itoa(process)
	var err error
	l.inside, err = l.Hold("inside", int(ns.Fd()))
	must(t, err)
	opt.IDShift, opt.Stderr = nstest.Shift, testWriter{t}
	must(t, l.host.Do(func() (err error) {
		l.twin, err = Mirror(t.Context(), int(ns.Fd()), opt)
		return err
	}))
	twin := l.twin
	t.Cleanup(func() { must(t, twin.Close()) })
	return func(uid, line string) (string, error) {
		argv := append([]string{"-t", pid, "-U", "-n", "-S", uid, "-G", uid}, strings.Fields(line)...)
		out, err := exec.Command("nsenter", argv...).CombinedOutput()
		return string(out), err
	}
}

// TestRulesForUsers has the host route by user. The kernel compares its own ids,
// so each rule is moved by what the user namespace moves them.
func TestRulesForUsers(t *testing.T) {
	l := newLab(t, nstest.UserNS, nstest.NFT, nstest.Tool("nsenter"), nstest.Tool("sleep"), nstest.Tool("ip"))
	l.onHostAll(t, `
ip route add default via 192.0.2.254 table 77
ip -6 route add default via 2001:db8:1::fe table 77
ip rule add pref 90 uidrange 1000-1001 lookup 77
ip -6 rule add pref 90 uidrange 1000-1001 lookup 77
ip rule add pref 91 uidrange 0-4294967294 lookup 78
ip rule add pref 92 uidrange 4000000000-4000000001 blackhole
`)
	as := l.mirrorShifted(t, Options{})
	for _, c := range []struct{ uid, to, via string }{
		{"0", "203.0.113.80", "192.0.2.1"},
		{"1000", "203.0.113.80", "192.0.2.254"},
		{"1001", "203.0.113.80", "192.0.2.254"},
		{"1002", "203.0.113.80", "192.0.2.1"},
		{"1000", "2001:db8:80::80", "2001:db8:1::fe"},
		{"999", "2001:db8:80::80", "2001:db8:1::1"},
	} {
		if out, err := as(c.uid, "ip route get "+c.to); err != nil || !strings.Contains(out, " via "+c.via+" ") {
			t.Errorf("user %s to %s: %v: %s; want via %s", c.uid, c.to, err, out, c.via)
		}
	}
	out, err := as("0", "ip rule")
	must(t, err)
	for _, want := range []string{"90:\tfrom all uidrange 1000-1001 lookup 77", "91:\tfrom all uidrange 0-2147483646 lookup 78"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if notes := strings.Join(l.twin.Notes(), "\n"); !strings.Contains(notes, "rule pref 92 from all uidrange 4000000000-4000000001 blackhole is not in the twin: it has no such users") {
		t.Errorf("no note on users that nobody inside is:\n%s", notes)
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
	if out, err := as("0", "ip rule add pref 93 uidrange 5-6 lookup 77"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if got := l.lines(t); len(got) != 1 || got[0] != "ip rule add pref 93 from all uidrange 5-6 lookup 77" {
		t.Errorf("difference: %q", got)
	}
	must(t, l.twin.Reset(t.Context()))
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference after a reset: %q", got)
	}
}
