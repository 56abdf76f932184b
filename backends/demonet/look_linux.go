package demonet

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Look describes what the demo could have touched on the real machine, one line
// a thing, sorted: links, addresses, routes, rules and mounts.
func Look() ([]string, error) {
	var out []string
	for _, look := range []func() ([]string, error){links, addresses, routes, rules, mounts} {
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

// Groups lists the control groups of an environment, in any hierarchy. They are
// the machine's: the kernel does not end them with a world.
func Groups(id string) (out []string, err error) {
	for _, pattern := range []string{"netsandbox", "*/netsandbox"} {
		found, err := filepath.Glob(filepath.Join("/sys/fs/cgroup", pattern, id))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// inhabitants lists the processes of a PID namespace, given as /proc names it.
func inhabitants(ns string) (out []string, err error) {
	procs, err := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		if to, err := os.Readlink(filepath.Join(p, "ns", "pid")); err == nil && to == ns {
			out = append(out, filepath.Base(p))
		}
	}
	return out, err
}

// Clear deletes what the story left on the disk, unless something is mounted
// there: then what would be deleted is somebody else's.
func Clear(place string) error {
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, m := range all {
		if f := strings.Fields(m); len(f) > 5 && (f[5] == place || strings.HasPrefix(f[5], place+"/")) {
			return fmt.Errorf("clear %s: %s is mounted", place, f[5])
		}
	}
	return os.RemoveAll(place)
}
