package nettwin

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestTwinOfAUserNamespace mirrors into a namespace that a shifted user
// namespace owns, as a view has it: its root may change what is there, except
// what is the relay's.
func TestTwinOfAUserNamespace(t *testing.T) {
	l := newLab(t, nstest.UserNS, nstest.NFT, nstest.Tool("nsenter"), nstest.Tool("sleep"), nstest.Tool("ip"), nstest.Tool("nft"), nstest.Tool("sysctl"))
	echo(t, l.server, "tcp", ":80")
	greet(t, l.host, "127.0.0.1:7890", "host-proxy")
	const shift = 1 << 31
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: shift, Size: 1<<31 - 1}}
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{}}
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	pid := strconv.Itoa(cmd.Process.Pid)
	ns, err := os.Open("/proc/" + pid + "/ns/net")
	must(t, err)
	defer ns.Close()
	l.inside, err = l.Hold("inside", int(ns.Fd()))
	must(t, err)
	must(t, l.host.Do(func() (err error) {
		l.twin, err = Mirror(t.Context(), int(ns.Fd()), Options{Relay: []uint16{7890}, Stderr: testWriter{t}})
		return err
	}))
	twin := l.twin
	t.Cleanup(func() { must(t, twin.Close()) })
	l.seenAs(t, "tcp", "203.0.113.80:80")

	inside := func(line string) (string, error) {
		argv := append([]string{"-t", pid, "-U", "-n", "-S", "0", "-G", "0"}, strings.Fields(line)...)
		out, err := exec.Command("nsenter", argv...).CombinedOutput()
		return string(out), err
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
