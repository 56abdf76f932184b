package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// legacy is the view's group under a v1 controller.
func (g *Group) legacy(controller string) (dir string, ok bool) {
	mount, ok := g.v1[controller]
	return filepath.Join(mount, Tag, g.id, "view"), ok
}

// Enter puts one thread of the calling process under the v1 controllers that
// limit a view, with their limits: what it forks is born there. Moving a PID 1
// instead would cost each build up to 20 ms, and every fork on the machine
// waits meanwhile.
func (g *Group) Enter(tid int) error {
	for _, c := range []struct{ controller, file, value string }{
		{"pids", "pids.max", strconv.Itoa(maxTasks())},
		{"memory", "memory.limit_in_bytes", strconv.FormatUint(maxMemory(), 10)},
	} {
		dir, ok := g.legacy(c.controller)
		if !ok {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if err := set(dir, c.file, c.value); err != nil {
			return err
		}
		if err := set(dir, "tasks", strconv.Itoa(tid)); err != nil {
			return err
		}
	}
	return nil
}

// Place puts a view's PID 1 under the v1 freezer where that is the only one. A
// thread of the holder must not be in it, or it would be frozen along.
func (g *Group) Place(pid int) error {
	dir, ok := g.legacy("freezer")
	if !ok || g.v2 != "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	return set(dir, "cgroup.procs", strconv.Itoa(pid))
}

func set(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
		return fmt.Errorf("set %s: %w", file, err)
	}
	return nil
}

// freezeV1 is Freeze through the v1 freezer.
func (g *Group) freezeV1(on bool, deadline time.Duration) error {
	dir, ok := g.legacy("freezer")
	if !ok {
		return fmt.Errorf("freeze view: this machine has no freezer: %w", errors.ErrUnsupported)
	}
	want := "THAWED"
	if on {
		want = "FROZEN"
	}
	return settle(deadline, func() (bool, error) {
		// Written again and again: a process that forks while its group freezes can
		// keep it from getting there.
		if err := set(dir, "freezer.state", want); err != nil {
			return false, err
		}
		b, err := os.ReadFile(filepath.Join(dir, "freezer.state"))
		return strings.TrimSpace(string(b)) == want, err
	})
}

// settle waits until a freezer is where it was sent.
func settle(deadline time.Duration, there func() (bool, error)) error {
	end := time.Now().Add(deadline)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		ok, err := there()
		if err != nil {
			return fmt.Errorf("freeze view: %w", err)
		}
		if ok {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("freeze view: a process does not stop")
		}
		time.Sleep(wait)
	}
}

// legacyRoots are the groups that Remove takes away in the v1 hierarchies.
func (g *Group) legacyRoots() []string {
	var out []string
	for _, c := range []string{"systemd", "pids", "memory", "freezer"} {
		if mount, ok := g.v1[c]; ok {
			out = append(out, filepath.Join(mount, Tag, g.id))
		}
	}
	return out
}

// removeGroups removes a group with those below it: directories only, the files
// in it are the kernel's.
func removeGroups(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroups(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// A process that just ended leaves its group a little later.
	end := time.Now().Add(2 * time.Second)
	for {
		err := unix.Rmdir(dir)
		if err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(end) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
