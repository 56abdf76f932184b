package holder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
)

// busy reports whether the view is in use. The caller holds h.mu.
func (h *Holder) busy() (bool, error) {
	// A check goes on beside a command: a rebuild would end its candidates.
	if h.canaries.any() {
		return true, nil
	}
	return h.lives()
}

// lives reports whether anything is alive in the view that could write to it.
// Candidates have layers of their own. The caller holds h.mu.
func (h *Holder) lives() (bool, error) {
	if h.sessions.any() || h.group.Populated(viewGroup+"/commands") {
		return true, nil
	}
	ps, err := h.inhabitants()
	return len(ps) > 0, err
}

// inhabitants lists the processes that live in the view, without its PID 1. The
// caller holds h.mu.
func (h *Holder) inhabitants() ([]backends.Process, error) {
	v := h.view
	if v == nil || !v.alive() {
		return nil, nil
	}
	pids, err := h.group.Processes(viewGroup)
	if err == nil && !h.group.Unified() {
		pids, err = descendants(v.proc.Pid)
	}
	if err != nil {
		return nil, fmt.Errorf("list processes of the view: %w", err)
	}
	slices.Sort(pids)
	var out []backends.Process
	for _, pid := range slices.Compact(pids) {
		if pid == v.proc.Pid {
			continue
		}
		comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
		if err != nil {
			continue // ended meanwhile
		}
		out = append(out, backends.Process{PID: pid, Comm: strings.TrimSpace(string(comm))})
	}
	return out, nil
}

// descendants walks down from a PID 1, to which every orphan of its namespace
// comes back.
func descendants(pid int) ([]int, error) {
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return nil, err
	}
	var out []int
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for f := range strings.FieldsSeq(string(b)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				continue
			}
			below, err := descendants(child)
			if err != nil {
				return nil, err
			}
			out = append(append(out, child), below...)
		}
	}
	return out, nil
}
