package mountplan

import (
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Mount is one line of mountinfo, with what the plan needs of it.
type Mount struct {
	ID, Parent int
	Dev        string // "major:minor"
	Root       string // what of the filesystem is mounted, a path within it
	Point      string
	FS         string
	// Subvolume is the btrfs subvolume that Root is in.
	Subvolume string
	// Layers are the directories that an overlay shows, as they were named when it
	// was mounted.
	Layers []string
	// ReadOnly: the mount or the whole filesystem.
	ReadOnly     bool
	NoSuid       bool
	NoExec       bool
	NoSymFollow  bool
	beyondLookup bool
}

// deleted ends the root of a mount whose source was removed. No path holds two
// slashes in a row, so no name can look like it.
const deleted = "//deleted"

// Deleted reports that what is mounted has no name in its filesystem any more.
func (m Mount) Deleted() bool { return strings.HasSuffix(m.Root, deleted) }

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
	tops := 0
	for _, i := range infos {
		m := parse(i)
		if m.Point == "/" {
			tops++
		}
		out = append(out, m)
	}
	if tops > 1 {
		var st unix.Statx_t
		if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_MNT_ID, &st); err != nil {
			return nil, fmt.Errorf("look at the root directory: %w", err)
		}
		markBeyond(out, int(st.Mnt_id))
	}
	return out, nil
}

func parse(i *mountinfo.Info) Mount {
	own, fs := ","+i.Options+",", ","+i.VFSOptions+","
	m := Mount{
		ID: i.ID, Parent: i.Parent, Dev: fmt.Sprintf("%d:%d", i.Major, i.Minor),
		Root: i.Root, Point: i.Mountpoint, FS: i.FSType,
		ReadOnly:    strings.Contains(own, ",ro,") || strings.Contains(fs, ",ro,"),
		NoSuid:      strings.Contains(own, ",nosuid,"),
		NoExec:      strings.Contains(own, ",noexec,"),
		NoSymFollow: strings.Contains(own, ",nosymfollow,"),
	}
	if _, rest, ok := strings.Cut(fs, ",subvol="); ok && m.FS == "btrfs" {
		// The last option; a comma in the name is not escaped.
		m.Subvolume = strings.TrimSuffix(rest, ",")
	}
	if m.FS == "overlay" {
		m.Layers = layersOf(i.VFSOptions)
	}
	return m
}

// layersOf reads the lower and upper directories from an overlay's options. A
// colon or backslash in a name is escaped by a backslash, and the table escapes
// that once more, with commas and blanks, by octal numbers.
func layersOf(options string) []string {
	octal := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\054`, ",", `\134`, `\`)
	var out []string
	for o := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(o, "=")
		if key != "upperdir" && !strings.HasPrefix(key, "lowerdir") && !strings.HasPrefix(key, "datadir") {
			continue
		}
		value = strings.ReplaceAll(octal.Replace(value), `\:`, "\x00")
		for dir := range strings.SplitSeq(value, ":") {
			dir = strings.ReplaceAll(strings.ReplaceAll(dir, "\x00", ":"), `\\`, `\`)
			if strings.HasPrefix(dir, "/") {
				out = append(out, path.Clean(dir))
			}
		}
	}
	return out
}

// markBeyond marks what is mounted on top of the directory that is the caller's
// root. A path lookup begins at the root and does not look at what is on it, so
// a process that was there first never sees that; one that joins the mount
// namespace later starts on it.
func markBeyond(ms []Mount, root int) {
	at := map[int]int{}
	for i, m := range ms {
		at[m.ID] = i
	}
	if _, ok := at[root]; !ok {
		return
	}
	for i := range ms {
		for m, hops := ms[i], 0; hops <= len(ms); hops++ {
			if m.ID == root {
				break
			}
			up, ok := at[m.Parent]
			if m.Point == "/" || !ok {
				ms[i].beyondLookup = true
				break
			}
			m = ms[up]
		}
	}
}

// OnRoot counts the mounts on top of the caller's root directory.
func OnRoot(ms []Mount) int {
	n := 0
	for _, m := range ms {
		if m.beyondLookup && m.Point == "/" {
			n++
		}
	}
	return n
}

// Visible returns the mounts that a path lookup can reach, by doing the lookup:
// from the root mount along the path of each, through whatever is mounted on the
// way, and seeing whether it ends there.
func Visible(all []Mount) []Mount {
	type place struct {
		parent int
		point  string
	}
	on := make(map[place]int, len(all)) // the mount at a place of a mount
	known := make(map[int]bool, len(all))
	for _, m := range all {
		known[m.ID] = true
	}
	root := -1
	for i, m := range all {
		switch {
		case m.beyondLookup:
		case m.Point == "/" && (m.Parent == m.ID || !known[m.Parent]):
			root = i
		default:
			on[place{m.Parent, m.Point}] = i
		}
	}
	var out []Mount
	for i, m := range all {
		at := root
		if at < 0 { // in a chroot nothing above tells what is hidden
			at = i
		}
		down := func(point string) {
			for hops := 0; at >= 0 && hops <= len(all); hops++ {
				next, ok := on[place{all[at].ID, point}]
				if !ok || next == at {
					return
				}
				at = next
			}
		}
		down("/")
		for j := 1; j <= len(m.Point) && m.Point != "/"; j++ {
			if j == len(m.Point) || m.Point[j] == '/' {
				down(m.Point[:j])
			}
		}
		if at == i && !m.beyondLookup {
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
