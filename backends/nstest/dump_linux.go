package nstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
)

// HostDump renders everything of the calling thread's namespaces that
// netsandbox must not touch: links, addresses, routes of all tables, rules, the
// nft ruleset, forwarding sysctls, mounts, and netsandbox's own processes and
// cgroups. One fact a line, sorted, without counters and lifetimes, so that two
// dumps of an untouched machine are equal; see [Difference].
func HostDump(t testing.TB) string {
	t.Helper()
	lines, err := dump(parts()...)
	if err != nil {
		t.Fatalf("nstest: dump host: %v", err)
	}
	return strings.Join(lines, "\n") + "\n"
}

// part reads one kind of fact.
type part struct {
	read   func() ([]string, error)
	shared bool // tests that run at the same time have theirs in the same place
}

func parts() []part {
	return []part{
		{read: dumpLinks},
		{read: dumpRaw},
		{read: dumpNFT},
		{read: dumpSysctls},
		{read: dumpMounts},
		{read: dumpProcesses, shared: true},
		{read: dumpCgroups, shared: true},
	}
}

func dump(ps ...part) ([]string, error) {
	var all []string
	var errs []error
	for _, p := range ps {
		lines, err := p.read()
		errs = append(errs, err)
		all = append(all, lines...)
	}
	slices.Sort(all)
	return all, errors.Join(errs...)
}

func dumpLinks() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var lines []string
	for _, l := range links {
		a := l.Attrs()
		lines = append(lines, fmt.Sprintf("link %d %s type %s mtu %d mac %s master %d flags %s txqlen %d",
			a.Index, a.Name, l.Type(), a.MTU, a.HardwareAddr, a.MasterIndex, a.Flags, a.TxQLen))
	}
	return lines, nil
}

// dumpNFT asks nft(8) where it is installed. -s leaves counters out. Without
// the tool, tables and chains are named and the rules of each are counted.
func dumpNFT() ([]string, error) {
	if path, err := exec.LookPath("nft"); err == nil {
		out, err := exec.Command(path, "-s", "list", "ruleset").Output()
		if err != nil {
			return nil, fmt.Errorf("list nft ruleset: %w", err)
		}
		var lines []string
		var at []string // the blocks that enclose a line, so that it can be sorted
		for line := range strings.Lines(string(out)) {
			line = strings.TrimSpace(line)
			switch {
			case line == "":
			case line == "}":
				at = at[:max(len(at)-1, 0)]
			case strings.HasSuffix(line, "{"):
				at = append(at, strings.TrimSuffix(line, " {"))
				lines = append(lines, "nft "+strings.Join(at, " / "))
			default:
				lines = append(lines, "nft "+strings.Join(at, " / ")+": "+line)
			}
		}
		return lines, nil
	}
	return countNFT()
}

func countNFT() ([]string, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nf_tables: %w", err)
	}
	tables, err := c.ListTables()
	if err != nil {
		// A kernel without nf_tables has no ruleset either.
		return []string{"nft unavailable"}, nil //nolint:nilerr // said in the dump
	}
	var lines []string
	for _, t := range tables {
		lines = append(lines, fmt.Sprintf("nft table family %d %s", t.Family, t.Name))
		chains, err := c.ListChainsOfTableFamily(t.Family)
		if err != nil {
			return nil, fmt.Errorf("list nft chains: %w", err)
		}
		for _, ch := range chains {
			if ch.Table.Name != t.Name {
				continue
			}
			rules, err := c.GetRules(t, ch)
			if err != nil {
				return nil, fmt.Errorf("list nft rules: %w", err)
			}
			lines = append(lines, fmt.Sprintf("nft table family %d %s chain %s rules %d", t.Family, t.Name, ch.Name, len(rules)))
		}
	}
	return lines, nil
}

// dumpSysctls reads the switches that a host-side network path would need.
func dumpSysctls() ([]string, error) {
	var lines []string
	for _, pattern := range []string{
		"net/ipv4/ip_forward", "net/ipv4/conf/*/forwarding", "net/ipv4/conf/*/rp_filter",
		"net/ipv4/conf/*/route_localnet", "net/ipv6/conf/*/forwarding", "net/ipv6/conf/*/accept_ra",
	} {
		names, err := filepath.Glob("/proc/sys/" + pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if errors.Is(err, os.ErrNotExist) {
				continue // the interface went away meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("read sysctl: %w", err)
			}
			lines = append(lines, fmt.Sprintf("sysctl %s = %s", strings.TrimPrefix(name, "/proc/sys/"), strings.TrimSpace(string(b))))
		}
	}
	return lines, nil
}

func dumpMounts() ([]string, error) {
	ms, err := readMounts()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, m := range ms {
		lines = append(lines, "mount "+m.text)
	}
	return lines, nil
}

// dumpProcesses lists netsandbox processes that share the thread's network or
// mount namespace; those of another test's namespaces are none of ours.
func dumpProcesses() ([]string, error) {
	net, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	mnt, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, p := range processes(func(dir string) bool {
		n, _ := os.Readlink(dir + "/ns/net")
		m, _ := os.Readlink(dir + "/ns/mnt")
		return (n == net || m == mnt) && !dead(dir)
	}) {
		if strings.HasPrefix(p.comm, "netsandbox") {
			lines = append(lines, fmt.Sprintf("process %d %s", p.pid, p.comm))
		}
	}
	return lines, nil
}

func dumpCgroups() ([]string, error) {
	var lines []string
	for _, pattern := range []string{"*", "*/*", "*/*/*"} {
		dirs, err := filepath.Glob("/sys/fs/cgroup/" + pattern + "netsandbox*")
		if err != nil {
			return nil, err
		}
		for _, d := range dirs {
			lines = append(lines, "cgroup "+d)
		}
	}
	return lines, nil
}
