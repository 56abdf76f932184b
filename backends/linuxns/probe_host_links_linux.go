package linuxns

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/linuxns/client"
)

// linkKinds names the links that are something else in a twin. Their traffic goes
// out by the host's, so only their own settings cannot be tried. A port of a VRF
// is more: the twin's is in no VRF, and routes other packets by it.
func linkKinds(h *hostNet) (backends.Finding, error) {
	var plain, ports []string
	vrf := map[int]string{}
	for _, l := range h.links {
		if l.Kind == "vrf" {
			vrf[l.Index] = l.Name
		}
	}
	for _, l := range h.links {
		if on, ok := vrf[l.Master]; ok {
			ports = append(ports, l.Name+" of "+on)
		}
		if l.Kind != "" && l.Kind != "veth" {
			plain = append(plain, fmt.Sprintf("%s (%s)", l.Name, l.Kind))
		}
	}
	switch {
	case ports != nil:
		return lesser("circuits by a VRF can be checked on the host only, after apply",
			"%s: a VRF's ports are in none in a twin; circuits by them are Unverifiable", listed(ports))
	case plain != nil:
		return fine("carried, but plain interfaces in a twin: %s", listed(plain))
	}
	return fine("every link is in a twin as it is")
}

// tunOwners names the processes behind TUN and TAP links. A twin reaches what they
// serve; restarting one is a change of the host.
func tunOwners(h *hostNet) (backends.Finding, error) {
	tuns := map[string][]string{}
	for _, l := range h.links {
		if l.Kind == "tun" {
			tuns[l.Name] = nil
		}
	}
	if len(tuns) == 0 {
		return fine("no link is a process's")
	}
	if err := findOwners(h.ns, tuns); err != nil {
		return backends.Finding{}, err
	}
	var lines, idle []string
	for _, l := range h.links {
		switch owners, ok := tuns[l.Name]; {
		case !ok:
		case owners == nil:
			idle = append(idle, l.Name)
		default:
			lines = append(lines, l.Name+" is "+strings.Join(owners, ", ")+"'s")
		}
	}
	if idle != nil {
		lines = append(lines, "nobody visible holds "+strings.Join(idle, ", "))
	}
	return fine("%s; what is behind it is reached from a twin", strings.Join(lines, "; "))
}

// findOwners adds to each name who has it attached: a descriptor of /dev/net/tun
// says its link in fdinfo, by name. The name may be another namespace's, so a
// thread of the process must be in this one; and a holder of ours has links of the
// same names, those of its twin.
func findOwners(ns int, tuns map[string][]string) error {
	pids, err := processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		fds, _ := os.ReadDir(dir + "/fd") // it may have ended
		for _, fd := range fds {
			if target, _ := os.Readlink(dir + "/fd/" + fd.Name()); target != "/dev/net/tun" {
				continue
			}
			name := attached(dir + "/fdinfo/" + fd.Name())
			who := fmt.Sprintf("%s (%d)", comm(dir), pid)
			owners, ok := tuns[name]
			if ok && !slices.Contains(owners, who) && !carries(pid) && inNetwork(dir, ns) {
				tuns[name] = append(owners, who)
			}
		}
	}
	return nil
}

// carries reports whether a process is a part of ours that has a twin's links.
func carries(pid int) bool {
	name := argv0(pid)
	return name == client.HolderArgv0 || name == relay.Argv0
}

// inNetwork reports whether a thread of the process is in a network namespace.
func inNetwork(dir string, ns int) bool {
	var here, its unix.Stat_t
	if unix.Fstat(ns, &here) != nil {
		return false
	}
	threads, _ := filepath.Glob(dir + "/task/*/ns/net")
	return slices.ContainsFunc(threads, func(t string) bool {
		return unix.Stat(t, &its) == nil && its.Ino == here.Ino && its.Dev == here.Dev
	})
}

// attached reads the link of a descriptor of /dev/net/tun, Linux 3.16.
func attached(fdinfo string) string {
	f, err := os.Open(fdinfo)
	if err != nil {
		return ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if name, ok := strings.CutPrefix(sc.Text(), "iff:\t"); ok {
			return name
		}
	}
	return ""
}

func comm(dir string) string {
	b, _ := os.ReadFile(dir + "/comm")
	return change.Escape(strings.TrimSpace(string(b)))
}
