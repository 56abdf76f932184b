package linuxns

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// socketOwners finds, for each socket inode, the process with the lowest pid
// that has it open: a descriptor is inherited downwards, so the lowest is most
// often the one that made it. What vanishes during the scan, and what the
// caller may not look into, is left out.
func socketOwners(ctx context.Context, inodes map[uint32]bool) (map[uint32]backends.Process, error) {
	owners := make(map[uint32]backends.Process, len(inodes))
	if len(inodes) == 0 {
		return owners, nil
	}
	pids, err := processes()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, inode := range openSockets(pid) {
			if _, known := owners[inode]; known || !inodes[inode] {
				continue
			}
			owners[inode] = backends.Process{PID: pid, Comm: processName(pid)}
		}
		if len(owners) == len(inodes) {
			break
		}
	}
	return owners, nil
}

// processes returns every pid of the present pid namespace, ascending.
func processes() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// openSockets returns the inodes of the sockets a process has open. It reads
// link texts only: nothing is opened, so no terminal or device is touched.
func openSockets(pid int) []uint32 {
	fds := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	dir, err := os.Open(fds)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // a process that ends here had no socket we need
	var inodes []uint32
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(fds, name))
		if err != nil {
			continue
		}
		text, ok := strings.CutPrefix(target, "socket:[")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 32); err == nil {
			inodes = append(inodes, uint32(n))
		}
	}
	return inodes
}

// processName is the process's own choice of a name, so it is escaped.
func processName(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	if err != nil {
		return ""
	}
	return change.Escape(strings.TrimSuffix(string(b), "\n"))
}
