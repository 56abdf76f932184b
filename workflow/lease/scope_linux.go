package lease

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// scopePrefix names the keeper's cgroups; the pid follows.
const scopePrefix = "netsandbox-keeper-"

// hierarchies are the cgroup v1 controllers through which a caller's cgroup
// could take the keeper with it: by kill-all of a unit, by freezing, by limits.
// A cpuset would have to be filled in before it can be joined, and harms nobody.
var hierarchies = []string{"name=systemd", "freezer", "pids", "memory"}

// scope is the set of cgroups a keeper moved itself to.
type scope struct {
	moves []move
}

type move struct{ from, to string } // directories

// enter moves this process to a cgroup of its own in every hierarchy that can
// take it with its caller. What cannot be done is noted: a trial is safer with
// it, not impossible without.
func (s *scope) enter() (notes []string) {
	roots, err := cgroupRoots()
	if err != nil || len(roots) == 0 {
		return []string{"keeper shares its caller's cgroup: no cgroup filesystem is mounted"}
	}
	for _, r := range roots {
		from, err := own(r.key)
		if err == nil {
			m := move{from: filepath.Join(r.dir, from), to: filepath.Join(r.dir, scopePrefix+strconv.Itoa(os.Getpid()))}
			if err = join(m.to); err == nil {
				s.moves = append(s.moves, m)
				continue
			}
		}
		notes = append(notes, fmt.Sprintf("keeper shares its caller's cgroup in %s: %v", r.dir, err))
	}
	return notes
}

// leave goes back and removes the cgroups. A keeper that is killed leaves empty
// ones; see [Sweep].
func (s *scope) leave() {
	for _, m := range s.moves {
		if os.WriteFile(filepath.Join(m.from, "cgroup.procs"), []byte("0"), 0) == nil {
			_ = unix.Rmdir(m.to)
		}
	}
}

// join makes a cgroup and moves this process into it.
func join(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0)
	if err != nil {
		_ = unix.Rmdir(dir)
	}
	return err
}

// root is the top of one hierarchy as this process sees it. Its key is the
// middle field of the hierarchy's line in /proc/self/cgroup, empty for v2.
type root struct{ dir, key string }

func cgroupRoots() ([]root, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, err
	}
	var roots []root
	for _, m := range mounts {
		if m.FSType == "cgroup2" {
			roots = append(roots, root{dir: m.Mountpoint})
			continue
		}
		for o := range strings.SplitSeq(m.VFSOptions, ",") {
			if slices.Contains(hierarchies, o) {
				roots = append(roots, root{dir: m.Mountpoint, key: o})
				break
			}
		}
	}
	return roots, nil
}

// own returns this process's cgroup in a hierarchy.
func own(key string) (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[1] == key || key != "" && slices.Contains(strings.Split(f[1], ","), key)) {
			return f[2], nil
		}
	}
	return "", fmt.Errorf("no hierarchy %q in /proc/self/cgroup", key)
}

// Leftovers lists the cgroups of keepers that were killed, for doctor.
func Leftovers() (dirs []string) {
	for _, dir := range scopes() {
		if b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err == nil && len(b) == 0 {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Sweep removes them. One that is in use cannot be removed.
func Sweep() {
	for _, dir := range scopes() {
		_ = unix.Rmdir(dir)
	}
}

// scopes lists the cgroups of all keepers.
func scopes() (dirs []string) {
	roots, err := cgroupRoots()
	if err != nil {
		return nil
	}
	for _, r := range roots {
		found, _ := filepath.Glob(filepath.Join(r.dir, scopePrefix+"*")) // only a bad pattern is an error
		dirs = append(dirs, found...)
	}
	return dirs
}
