package demonet

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Look describes what the demo could have touched on the real machine, one line
// a thing, sorted: links, addresses, routes, rules, mounts, our control groups,
// and the processes that run exe, but for the caller.
func Look(exe string) ([]string, error) {
	var out []string
	for _, look := range []func() ([]string, error){links, addresses, routes, rules, mounts, groups, func() ([]string, error) { return running(exe) }} {
		lines, err := look()
		if err != nil {
			return nil, fmt.Errorf("look at the machine: %w", err)
		}
		out = append(out, lines...)
	}
	slices.Sort(out)
	return out, nil
}

func links() (out []string, err error) {
	all, err := netlink.LinkList()
	for _, l := range all {
		a := l.Attrs()
		out = append(out, fmt.Sprintf("link %d %s %s mtu %d %s up=%v", a.Index, a.Name, l.Type(), a.MTU, a.HardwareAddr, a.Flags&unix.IFF_UP != 0))
	}
	return out, err
}

func addresses() (out []string, err error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for _, a := range all {
		out = append(out, fmt.Sprintf("address %s on link %d", a.IPNet, a.LinkIndex))
	}
	return out, err
}

func routes() (out []string, err error) {
	all, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	for _, r := range all {
		if r.Flags&unix.RTM_F_CLONED == 0 {
			out = append(out, fmt.Sprintf("route %s via %s link %d table %d priority %d", r.Dst, r.Gw, r.LinkIndex, r.Table, r.Priority))
		}
	}
	return out, err
}

func rules() (out []string, err error) {
	all, err := netlink.RuleList(netlink.FAMILY_ALL)
	for _, r := range all {
		out = append(out, fmt.Sprintf("rule family %d %s", r.Family, r))
	}
	return out, err
}

func mounts() (out []string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	for l := range strings.Lines(string(b)) {
		out = append(out, "mount "+strings.TrimSpace(l))
	}
	return out, err
}

// groups lists the control groups that carry our name in any hierarchy.
func groups() (out []string, err error) {
	const root = "/sys/fs/cgroup"
	for _, pattern := range []string{"netsandbox/*", "*/netsandbox/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if fi, err := os.Lstat(f); err == nil && fi.IsDir() {
				out = append(out, "cgroup "+f)
			}
		}
	}
	return out, nil
}

// running lists the processes of our program.
func running(exe string) (out []string, err error) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		to, err := os.Readlink(filepath.Join(p, "exe"))
		if err != nil || strings.TrimSuffix(to, " (deleted)") != exe || filepath.Base(p) == fmt.Sprint(os.Getpid()) {
			continue // gone, or a thread of the kernel's
		}
		cmd, err := fs.ReadFile(os.DirFS(p), "cmdline")
		if err != nil {
			continue
		}
		argv0, _, _ := strings.Cut(string(cmd), "\x00")
		out = append(out, fmt.Sprintf("process %s %s", filepath.Base(p), argv0))
	}
	return out, err
}
