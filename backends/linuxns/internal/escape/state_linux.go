package escape

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// state looks for the covered state directory: it holds the layers, backups
// and journals of every environment.
var state = []probe{
	{"state: as it is", func(f Fixture) (Verdict, string) { return f.find("") }},
	{"state: umount of the cover", func(f Fixture) (Verdict, string) {
		return apart(func() (Verdict, string) {
			if err := unix.Unmount(f.StateRoot, 0); err != nil {
				return judge(err, "")
			}
			return f.find("")
		})
	}},
	{"state: lazy umount of the cover", func(f Fixture) (Verdict, string) {
		return apart(func() (Verdict, string) {
			if err := unix.Unmount(f.StateRoot, unix.MNT_DETACH); err != nil {
				return judge(err, "")
			}
			return f.find("")
		})
	}},
	{"state: remount of the cover", func(f Fixture) (Verdict, string) {
		return apart(func() (Verdict, string) {
			return judge(unix.Mount("", f.StateRoot, "", unix.MS_REMOUNT|unix.MS_BIND, ""), "writable")
		})
	}},
	{"state: bind of /", func(f Fixture) (Verdict, string) { return bound("/", f.find) }},
	{"state: recursive bind of /", func(f Fixture) (Verdict, string) { return f.recursive() }},
	{"state: detached clone of /", func(f Fixture) (Verdict, string) { return f.detached() }},
	{"state: nested overlay of /", func(f Fixture) (Verdict, string) { return f.nestedOverlay() }},
	{"state: chroot and climb", func(f Fixture) (Verdict, string) { return f.climb() }},
	{"state: /proc/N/root and cwd", func(f Fixture) (Verdict, string) { return f.processes() }},
	{"state: descriptors of pid 1", func(f Fixture) (Verdict, string) { return f.descriptors() }},
	{"state: mount namespace of pid 1", func(f Fixture) (Verdict, string) {
		return apart(func() (Verdict, string) {
			fd, err := unix.Open("/proc/1/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge(err, "")
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
				return judge(err, "")
			}
			return f.find("")
		})
	}},
}

// find reads the marker below another root.
func (f Fixture) find(root string) (Verdict, string) {
	b, err := os.ReadFile(root + f.Marker)
	switch {
	case err != nil:
		return judge(err, "")
	case strings.Contains(string(b), f.Secret):
		return Hole, "state directory read"
	default:
		return Denied, "another file"
	}
}

// findAt reads the marker from a directory descriptor, climbing first.
func (f Fixture) findAt(dir int) (Verdict, string) {
	path := strings.Repeat("../", 40) + strings.TrimPrefix(f.Marker, "/")
	v, detail := Absent, ""
	for _, name := range []string{path, strings.TrimPrefix(f.Marker, "/")} {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			v, detail = judge(err, "")
			continue
		}
		unix.Close(fd)
		return Hole, "state directory opened"
	}
	return v, detail
}

func (f Fixture) recursive() (Verdict, string) {
	return apart(func() (Verdict, string) {
		return scratch(func(dir string) (Verdict, string) {
			if err := unix.Mount("/", dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
				return judge(err, "")
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			if err := unix.Unmount(dir+f.StateRoot, unix.MNT_DETACH); err != nil {
				if v, detail := f.find(dir); v == Hole {
					return v, detail
				}
				return judge(err, "")
			}
			return f.find(dir)
		})
	})
}

func (f Fixture) detached() (Verdict, string) {
	return apart(func() (Verdict, string) {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return judge(err, "")
		}
		defer unix.Close(fd)
		return f.findAt(fd)
	})
}

// nestedOverlay uses "/" as a lower, which shows what the mounts on it cover.
func (f Fixture) nestedOverlay() (Verdict, string) {
	return mounted("tmpfs", "", func(dir string) (Verdict, string) {
		for _, sub := range []string{"upper", "work", "merged"} {
			if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
				return judge(err, "")
			}
		}
		merged := filepath.Join(dir, "merged")
		options := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", dir, dir)
		if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
			return judge(err, "")
		}
		defer unix.Unmount(merged, unix.MNT_DETACH)
		return f.find(merged)
	})
}

// climb is the classic way out of a chroot: a directory descriptor from before.
func (f Fixture) climb() (Verdict, string) {
	return apart(func() (Verdict, string) {
		return scratch(func(dir string) (Verdict, string) {
			fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return judge(err, "")
			}
			defer unix.Close(fd)
			if err := unix.Chroot(dir); err != nil {
				return judge(err, "")
			}
			// Back, or the scratch directory cannot be removed by its name.
			defer func() { unix.Fchdir(fd); unix.Chroot(".") }()
			return f.findAt(fd)
		})
	})
}

// processes goes through the root and the directory of every process.
func (f Fixture) processes() (Verdict, string) {
	links, _ := filepath.Glob("/proc/[0-9]*/root")
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	if len(links) == 0 {
		return Absent, "no process"
	}
	v, detail := Denied, "view only"
	for _, link := range append(links, cwds...) {
		fd, err := unix.Open(link, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if found, how := f.findAt(fd); found == Hole {
			v, detail = Hole, link+": "+how
		}
		unix.Close(fd)
	}
	return v, detail
}

// descriptors looks at what PID 1 has open: a directory is a way out, and so
// is a file of the host. The Go runtime once kept the host's cgroup files there.
func (f Fixture) descriptors() (Verdict, string) {
	links, _ := filepath.Glob("/proc/1/fd/*")
	if len(links) == 0 {
		return Denied, "not listed"
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			return judge(err, "")
		}
		inert := target == "/dev/null" || strings.HasPrefix(target, "socket:") ||
			strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "anon_inode:")
		if !inert {
			return Hole, target
		}
	}
	return Denied, "inert only"
}
