package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
)

// Tag is the directory at the top of each hierarchy that holds ours.
const Tag = "netsandbox"

// Group is the groups of one environment.
type Group struct {
	id string
	v2 string            // where cgroup2 is mounted, or ""
	v1 map[string]string // where each v1 controller is mounted
}

// Open finds the hierarchies of this machine. It makes nothing.
func Open(id string) (*Group, error) {
	ms, err := mountplan.Read()
	if err != nil {
		return nil, err
	}
	g := &Group{id: id, v1: map[string]string{}}
	for _, m := range mountplan.Visible(ms) {
		switch {
		case m.ReadOnly:
		case m.FS == "cgroup2" && g.v2 == "":
			g.v2 = m.Point
		case m.FS == "cgroup":
			// Mounted by convention on a directory of the controllers' names.
			for name := range strings.SplitSeq(filepath.Base(m.Point), ",") {
				g.v1[name] = m.Point
			}
		}
	}
	return g, nil
}

// Name is how the group is recorded as a resource.
func (g *Group) Name() string { return Tag + "/" + g.id }

// Exists reports whether any hierarchy has the environment's group.
func (g *Group) Exists() bool {
	dirs := g.legacyRoots()
	if g.v2 != "" {
		dirs = append(dirs, g.path())
	}
	return slices.ContainsFunc(dirs, func(d string) bool {
		_, err := os.Stat(d)
		return err == nil
	})
}

// Unified reports whether there is a cgroup2 hierarchy.
func (g *Group) Unified() bool { return g.v2 != "" }

func (g *Group) path(elem ...string) string {
	return filepath.Join(append([]string{g.v2, Tag, g.id}, elem...)...)
}

// Adopt moves the calling process to the holder's group, out of whatever scope
// or service it was started from.
func (g *Group) Adopt() error {
	dirs := []string{}
	if g.v2 != "" {
		dirs = append(dirs, g.path("holder"))
	}
	if p, ok := g.v1["systemd"]; ok { // a service manager kills by this one
		dirs = append(dirs, filepath.Join(p, Tag, g.id))
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(d, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup %s: %w", d, err)
		}
	}
	return nil
}

// View makes the view's group with its limits and returns a descriptor of it,
// or -1 without a cgroup2 hierarchy. The group itself is handed to owner, who is
// root inside, but not its limits.
func (g *Group) View(name string, owner int) (int, error) {
	if g.v2 == "" {
		return -1, nil
	}
	dir := g.path(name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return -1, fmt.Errorf("make cgroup: %w", err)
	}
	if err := g.limit(name); err != nil {
		return -1, err
	}
	if owner != 0 {
		for _, f := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
			if err := os.Lchown(filepath.Join(dir, f), owner, owner); err != nil {
				return -1, fmt.Errorf("hand over cgroup: %w", err)
			}
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open cgroup: %w", err)
	}
	return fd, nil
}

// limit bounds the group so that a view cannot take the machine: half of the
// tasks and three quarters of the memory there is. Only controllers that the
// hierarchy hands down to its top level are used; enabling one there would be a
// change of the host.
func (g *Group) limit(name string) error {
	for _, c := range []struct{ controller, file, value string }{
		{"pids", "pids.max", strconv.Itoa(maxTasks())},
		{"memory", "memory.max", strconv.FormatUint(maxMemory(), 10)},
	} {
		for _, dir := range []string{filepath.Join(g.v2, Tag), g.path()} {
			if !has(filepath.Join(dir, "cgroup.controllers"), c.controller) {
				continue
			}
			// "+pids" again is no error. A process may sit in our top group only if
			// somebody put it there; then there are no limits.
			err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c.controller), 0)
			if err != nil && !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("enable %s controller: %w", c.controller, err)
			}
		}
		err := os.WriteFile(g.path(name, c.file), []byte(c.value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("set %s: %w", c.file, err)
		}
	}
	return nil
}

func has(file, word string) bool {
	b, err := os.ReadFile(file)
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

func maxTasks() int {
	b, err := os.ReadFile("/proc/sys/kernel/threads-max")
	n, perr := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || perr != nil {
		return 16384
	}
	return max(n/2, 1024)
}

func maxMemory() uint64 {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 1 << 40
	}
	return si.Totalram * uint64(si.Unit) / 4 * 3
}

// Processes returns the processes in the named group and the groups below it.
func (g *Group) Processes(name string) ([]int, error) {
	var pids []int
	if g.v2 == "" {
		return nil, nil
	}
	err := filepath.WalkDir(g.path(name), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.Name() != "cgroup.procs" {
			return nil
		}
		f, err := os.Open(p)
		if err != nil {
			return nil // the group was removed meanwhile
		}
		defer f.Close()
		for sc := bufio.NewScanner(f); sc.Scan(); {
			if pid, err := strconv.Atoi(sc.Text()); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list cgroup %s: %w", g.path(name), err)
	}
	return pids, nil
}

// Kill ends every process of the named group and waits until they are gone.
func (g *Group) Kill(name string, deadline time.Duration) error {
	if g.v2 == "" {
		return nil
	}
	end := time.Now().Add(deadline)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids, err := g.Processes(name)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("kill cgroup %s: %d processes do not end", g.path(name), len(pids))
		}
		// cgroup.kill takes forks in flight along; it came with Linux 5.14.
		if err := os.WriteFile(g.path(name, "cgroup.kill"), []byte("1"), 0); err != nil {
			for _, pid := range pids {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		time.Sleep(wait)
	}
}

// Freeze stops or resumes the named group and waits until that is so.
func (g *Group) Freeze(name string, on bool, deadline time.Duration) error {
	if g.v2 == "" {
		return g.freezeV1(on, deadline)
	}
	want := "0"
	if on {
		want = "1"
	}
	if err := set(g.path(name), "cgroup.freeze", want); err != nil {
		return fmt.Errorf("freeze view: %w", err)
	}
	return settle(deadline, func() (bool, error) {
		b, err := os.ReadFile(g.path(name, "cgroup.events"))
		return strings.Contains(string(b), "frozen "+want), err
	})
}

// Populated reports whether a process lives in the named group or below it,
// which is one file to read and no list.
func (g *Group) Populated(name string) bool {
	if g.v2 == "" {
		return false
	}
	b, err := os.ReadFile(g.path(name, "cgroup.events"))
	return err == nil && strings.Contains(string(b), "populated 1")
}

// Frozen reports whether the named group stands still.
func (g *Group) Frozen(name string) bool {
	b, err := os.ReadFile(g.path(name, "cgroup.events"))
	return err == nil && strings.Contains(string(b), "frozen 1")
}

// Remove removes the named group, or the environment's with "", from every
// hierarchy. Groups that still hold a process stay, with an error.
func (g *Group) Remove(name string) error {
	var errs []error
	roots := []string{}
	if g.v2 != "" {
		roots = append(roots, g.path(name))
	}
	if name == "" {
		roots = append(roots, g.legacyRoots()...)
	}
	for _, r := range roots {
		errs = append(errs, removeGroups(r))
		// Ours at the top goes with the last environment.
		if name == "" {
			unix.Rmdir(filepath.Dir(r))
		}
	}
	return errors.Join(errs...)
}
