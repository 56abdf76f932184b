package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/moby/sys/mountinfo"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/deadfs"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/linuxns/client"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/initd"
)

// ourTable is the name by which an nft table of ours is known.
const ourTable = "netsandbox"

// leftovers lists what carries our tag and belongs to no environment that
// lives. What cannot be listed is passed over: the finding about privileges
// says why.
func leftovers(ctx context.Context, stateRoot string) []backends.Finding {
	var found []backends.Finding
	for _, look := range []func(string) []backends.Finding{
		strayProcesses, emptyGroups, strayMounts, strayTables, strayRules,
	} {
		var some []backends.Finding
		err := limited(ctx, func(context.Context) error {
			some = look(stateRoot)
			return nil
		})
		if err == nil {
			found = append(found, some...)
		}
	}
	return found
}

func leftover(kind, what, fix string) backends.Finding {
	return backends.Finding{Name: "leftover " + kind, Status: "leftover", Detail: change.Escape(what), Fix: fix}
}

// strayProcesses finds parts of views whose holder is gone, and holders whose
// environment is.
func strayProcesses(string) []backends.Finding {
	pids, err := processes()
	if err != nil {
		return nil
	}
	var found []backends.Finding
	for _, pid := range pids {
		why, fix := "", fmt.Sprintf("kill %d", pid)
		switch argv0(pid) {
		case client.HolderArgv0:
			if !keepsEnvironment(pid) {
				why = "keeps an environment that was deleted"
			}
		case initd.Argv0, relay.Argv0:
			// Whoever ran it from the same file holds it, under whatever name.
			if p := parent(pid); argv0(p) != client.HolderArgv0 && program(p) != program(pid) {
				why = "outlived its holder"
			}
		case builder.LayerArgv0, deadfs.Argv0:
			// Nothing ends it but an answer; killed it is already.
			if program(parent(pid)) != program(os.Getpid()) {
				why, fix = "waits for a filesystem that does not answer", "umount -f of that filesystem, or the end of its server, ends it"
			}
		}
		if why != "" {
			what := fmt.Sprintf("process %d (%s) %s", pid, argv0(pid), why)
			found = append(found, leftover("process", what, fix))
		}
	}
	return found
}

func argv0(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(b), "\x00")
	return name
}

// program returns the file that a process runs, or "".
func program(pid int) string {
	name, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	return name
}

func parent(pid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// "pid (comm) state ppid …"; comm may hold anything.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(f[1]) // 0 is nobody's
	return ppid
}

// keepsEnvironment looks for the lock a holder has for as long as it lives. A
// process of somebody else's, which cannot be looked into, is left alone.
func keepsEnvironment(pid int) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil && filepath.Base(target) == envdir.HolderLock { // else "… (deleted)"
			return true
		}
	}
	return false
}

// emptyGroups finds cgroups of environments in which no process is left.
func emptyGroups(string) []backends.Finding {
	var found []backends.Finding
	mounts, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.FSType != "cgroup2" && i.FSType != "cgroup", false
	})
	if err != nil {
		return nil
	}
	for _, m := range mounts {
		groups, _ := filepath.Glob(filepath.Join(m.Mountpoint, cgroup.Tag, "*", "cgroup.procs"))
		for _, procs := range groups {
			if group := filepath.Dir(procs); !populated(group) {
				found = append(found, leftover("cgroup", group, fmt.Sprintf(`find %s -depth -type d -exec rmdir {} \;`, group)))
			}
		}
	}
	return found
}

// populated reports whether a process is in the group or below it.
func populated(group string) bool {
	some := errors.New("found one")
	err := filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil // groups come and go
		}
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			return some
		}
		return nil
	})
	return errors.Is(err, some)
}

// strayMounts finds mounts below the state directory: all of ours are in
// namespaces that end with their processes.
func strayMounts(stateRoot string) []backends.Finding {
	real, err := filepath.EvalSymlinks(stateRoot)
	if err != nil {
		return nil
	}
	mounts, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(i.Mountpoint, real+"/"), false
	})
	if err != nil {
		return nil
	}
	var found []backends.Finding
	for _, m := range mounts {
		found = append(found, leftover("mount", m.FSType+" on "+m.Mountpoint, "umount "+m.Mountpoint))
	}
	return found
}

func strayTables(string) []backends.Finding {
	c, err := nftables.New()
	if err != nil {
		return nil
	}
	tables, err := c.ListTables()
	if err != nil {
		return nil
	}
	families := map[nftables.TableFamily]string{
		nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
		nftables.TableFamilyARP: "arp", nftables.TableFamilyBridge: "bridge", nftables.TableFamilyNetdev: "netdev",
	}
	var found []backends.Finding
	for _, t := range tables {
		if t.Name == ourTable || strings.HasPrefix(t.Name, ourTable+"-") {
			name := families[t.Family] + " " + t.Name
			found = append(found, leftover("nft table", name, "nft delete table "+name))
		}
	}
	return found
}

// strayRules finds rules and routes of lanes whose owner is dead.
func strayRules(string) []backends.Finding {
	ns, err := netns.Current()
	if err != nil {
		return nil
	}
	defer ns.Close()
	objects, err := lanes.Find(int(ns.Fd()))
	if err != nil {
		return nil
	}
	var found []backends.Finding
	for _, o := range objects {
		if o.Alive {
			continue
		}
		kind, rest, _ := strings.Cut(o.Text, " ")
		family := "IPv4"
		if o.Six {
			family = "IPv6"
		}
		found = append(found, leftover(kind, family+", "+rest, "netsandbox recover"))
	}
	return found
}
