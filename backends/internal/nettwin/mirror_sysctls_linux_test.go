package nettwin

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
)

// sysctls reads those of a node.
func sysctls(t *testing.T, n *netlab.Node) (all map[string]string) {
	t.Helper()
	must(t, n.Do(func() (err error) {
		all, err = readSysctls()
		return err
	}))
	return all
}

// TestSysctlsAreTheHosts sets everything on the host that is its own in every
// namespace to something else, link by link too, and compares.
func TestSysctlsAreTheHosts(t *testing.T) {
	l := newLab(t)
	for _, kv := range [][2]string{
		{"ipv4/ip_unprivileged_port_start", "80"},
		{"ipv4/ip_local_port_range", "500 1500"},
		{"ipv4/ip_local_reserved_ports", "8080,9000-9100"},
		{"ipv4/ip_default_ttl", "77"},
		{"ipv4/ip_no_pmtu_disc", "1"},
		{"ipv4/ip_nonlocal_bind", "1"},
		{"ipv4/ip_forward", "1"},
		{"ipv4/fib_multipath_hash_policy", "1"},
		{"ipv4/fwmark_reflect", "1"},
		{"ipv4/icmp_echo_ignore_all", "1"},
		{"ipv4/tcp_ecn", "1"},
		{"ipv4/tcp_syn_retries", "3"},
		{"ipv4/tcp_keepalive_time", "123"},
		{"ipv4/tcp_rmem", "4096 100000 2000000"},
		{"ipv4/tcp_wmem", "4096 20000 3000000"},
		{"ipv4/tcp_congestion_control", "reno"},
		{"ipv4/tcp_fwmark_accept", "1"},
		{"ipv4/tcp_mtu_probing", "1"},
		{"ipv4/tcp_fastopen", "3"},
		{"ipv4/tcp_timestamps", "0"},
		{"ipv4/udp_rmem_min", "8192"},
		{"ipv4/conf/all/rp_filter", "2"},
		{"ipv6/bindv6only", "1"},
		{"ipv6/ip_nonlocal_bind", "1"},
		{"ipv6/conf/all/forwarding", "1"},
		{"ipv6/flowlabel_reflect", "1"},
		{"ipv6/conf/default/disable_ipv6", "1"},
		{"ipv6/conf/lo/forwarding", "0"},
		{"ipv4/conf/lo/forwarding", "0"},
	} {
		must(t, l.host.Sysctl(kv[0], kv[1]))
	}
	// Those that switch others, and those that no twin gets.
	apart := []string{"forwarding", "disable_ipv6", "mc_forwarding", "bc_forwarding"}
	turned := 0
	host := sysctls(t, l.host)
	for _, name := range slices.Sorted(maps.Keys(host)) {
		last := name[strings.LastIndexByte(name, '/')+1:]
		if link := sysctlLink(dotted(name)); link == "" || slices.Contains(apart, last) || ownSysctls[last] {
			continue
		}
		v, err := strconv.Atoi(host[name])
		if err != nil {
			continue
		}
		other := v ^ 1
		if l.host.Sysctl(name, strconv.Itoa(other)) == nil {
			turned++
		}
	}
	if turned < 300 {
		t.Fatalf("%d sysctls of links were changed", turned)
	}
	l.mirror(t, Options{})
	host = sysctls(t, l.host)
	twin := sysctls(t, l.inside)
	for _, name := range slices.Sorted(maps.Keys(host)) {
		if ownSysctls[name[strings.LastIndexByte(name, '/')+1:]] && name != "ipv4/ip_forward" {
			continue
		}
		if got, ok := twin[name]; !ok || got != host[name] {
			t.Errorf("%s: host %q, twin %q", name, host[name], got)
		}
	}
	for _, link := range []string{"eth0", "eth1"} {
		for k, v := range quietIPv6 {
			if got := twin["ipv6/conf/"+link+"/"+k]; got != v {
				t.Errorf("%s of %s is %q, want %q: the twin hears no routers and its addresses are copies", k, link, got, v)
			}
		}
	}
	for _, n := range l.twin.Notes() {
		if strings.HasPrefix(n, "sysctl ") {
			t.Errorf("note: %s", n)
		}
	}
	if got := l.lines(t); len(got) != 0 {
		t.Errorf("difference: %q", got)
	}
}
