package mountplan

import (
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Mount is one line of mountinfo, with what the plan needs of it.
type Mount struct {
	ID, Parent int
	Dev        string // "major:minor"
	Root       string // what of the filesystem is mounted, a path within it
	Point      string
	FS         string
	ReadOnly   bool
	NoSuid     bool
	NoExec     bool
}

// Read returns the mounts of the calling thread's mount namespace. The thread
// matters: a builder is one thread of a process that lives on the host.
func Read() ([]Mount, error) {
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	defer f.Close()
	infos, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	out := make([]Mount, 0, len(infos))
	for _, i := range infos {
		opts := "," + i.Options + ","
		out = append(out, Mount{
			ID: i.ID, Parent: i.Parent, Dev: fmt.Sprintf("%d:%d", i.Major, i.Minor),
			Root: i.Root, Point: i.Mountpoint, FS: i.FSType,
			ReadOnly: strings.Contains(opts, ",ro,"),
			NoSuid:   strings.Contains(opts, ",nosuid,"),
			NoExec:   strings.Contains(opts, ",noexec,"),
		})
	}
	return out, nil
}

// Visible returns the mounts that a path lookup can reach. A mount is hidden by
// a later one on the same place, or on a directory above it in the same parent.
func Visible(all []Mount) []Mount {
	byID := map[int]Mount{}
	for _, m := range all {
		byID[m.ID] = m
	}
	hidden := map[int]bool{}
	for i, m := range all {
		for j, o := range all {
			if o.ID == m.ID {
				continue
			}
			stacked := o.Parent == m.ID && o.Point == m.Point
			above := j > i && o.Parent == m.Parent && under(m.Point, o.Point)
			if stacked || above {
				hidden[m.ID] = true
				break
			}
		}
	}
	var out []Mount
	for _, m := range all {
		reachable := !hidden[m.ID]
		for p, seen := m, 0; reachable && seen <= len(all); seen++ {
			parent, ok := byID[p.Parent]
			if !ok || parent.ID == p.ID {
				break
			}
			// A parent hidden only by a mount that we stand on is no obstacle: then it
			// is our own stack.
			if hidden[parent.ID] && parent.Point != p.Point {
				reachable = false
			}
			p = parent
		}
		if reachable {
			out = append(out, m)
		}
	}
	return out
}

// under reports whether p is root or lies below it.
func under(p, root string) bool {
	return p == root || root == "/" || strings.HasPrefix(p, root+"/")
}

func underAny(p string, roots ...string) bool {
	for _, r := range roots {
		if under(p, r) {
			return true
		}
	}
	return false
}

// below returns p relative to root, "." when they are equal.
func below(p, root string) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(p, root), "/")
	if rel == "" {
		return "."
	}
	return rel
}

// join is path.Join for a relative path that may be ".".
func join(root, rel string) string { return path.Join(root, rel) }
