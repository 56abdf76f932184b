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

// legacy lists the v1 controllers that a view is put under: limits that cgroup2
// does not have here, and the freezer where there is no cgroup2 at all.
func (g *Group) legacy() map[string]string {
	out := map[string]string{}
	for _, c := range []string{"pids", "memory", "freezer"} {
		mount, ok := g.v1[c]
		if ok && (c != "freezer" || g.v2 == "") {
			out[c] = filepath.Join(mount, Tag, g.id, "view")
		}
	}
	return out
}

// Place puts a view's PID 1 under the v1 controllers, with their limits. All
// that it starts is born there. Moving a process waits for a grace period of
// the kernel (up to 20 ms when nobody moved one lately), so it is done beside
// something else.
func (g *Group) Place(pid int) error {
	for controller, dir := range g.legacy() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		switch controller {
		case "pids":
			if err := set(dir, "pids.max", strconv.Itoa(maxTasks())); err != nil {
				return err
			}
		case "memory":
			if err := set(dir, "memory.limit_in_bytes", strconv.FormatUint(maxMemory(), 10)); err != nil {
				return err
			}
		}
		if err := set(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

func set(dir, file, value string) error {
	if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
		return fmt.Errorf("set %s: %w", file, err)
	}
	return nil
}

// freezeV1 is Freeze through the v1 freezer.
func (g *Group) freezeV1(on bool, deadline time.Duration) error {
	dir, ok := g.legacy()["freezer"]
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
