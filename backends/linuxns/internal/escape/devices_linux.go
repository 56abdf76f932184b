package escape

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// devices try to get at hardware through a node.
var devices = []probe{
	{"mknod block in /tmp", func(Fixture) (Verdict, string) {
		return scratch(func(dir string) (Verdict, string) { return node(dir, unix.S_IFBLK, disk()) })
	}},
	{"mknod block in /dev", func(Fixture) (Verdict, string) { return node("/dev", unix.S_IFBLK, disk()) }},
	{"mknod char in /tmp", func(Fixture) (Verdict, string) {
		return scratch(func(dir string) (Verdict, string) { return node(dir, unix.S_IFCHR, mem) })
	}},
	{"mknod char in an own tmpfs", func(Fixture) (Verdict, string) {
		return mounted("tmpfs", "size=4k", func(dir string) (Verdict, string) { return node(dir, unix.S_IFCHR, mem) })
	}},
	{"block node of the lower", func(f Fixture) (Verdict, string) { return openFlags(f.BlockNode, unix.O_RDONLY) }},
	{"block node after remount of / with dev", func(f Fixture) (Verdict, string) {
		return apart(func() (Verdict, string) {
			if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
				return judge(err, "")
			}
			return openFlags(f.BlockNode, unix.O_RDONLY)
		})
	}},
	{"block node after mount_setattr of / with dev", func(f Fixture) (Verdict, string) {
		return apart(func() (Verdict, string) {
			err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODEV})
			if err != nil {
				return judge(err, "")
			}
			return openFlags(f.BlockNode, unix.O_RDONLY)
		})
	}},
	{"hardware nodes in /dev", hardware},
	{"immutable flag", immutable},
	{"trusted xattr", func(Fixture) (Verdict, string) { return xattr("trusted.netsandbox") }},
	{"security xattr", func(Fixture) (Verdict, string) { return xattr("security.netsandbox") }},
	{"freeze /", freeze},
}

// mem is the number of /dev/mem.
var mem = unix.Mkdev(1, 1)

// disk is the device number of the filesystem below /, or of the first virtio
// disk when / is an overlay.
func disk() uint64 {
	var st unix.Stat_t
	if unix.Stat("/", &st) == nil && unix.Major(st.Dev) != 0 {
		return st.Dev
	}
	return unix.Mkdev(254, 0)
}

// node makes a device node. Made is enough: in an upper it would be a change
// to the host, and whether it opens is up to the machine's own device rules.
func node(dir string, kind uint32, dev uint64) (Verdict, string) {
	path := filepath.Join(dir, "escape-node")
	err := unix.Mknod(path, kind|0o600, int(dev))
	if err != nil {
		return judge(err, "")
	}
	defer os.Remove(path)
	if v, detail := openFlags(path, unix.O_RDONLY|unix.O_NONBLOCK); v != Hole {
		return Hole, "made, open: " + detail
	}
	return Hole, "made and opened"
}

// harmless are the character devices every program may have.
var harmless = map[string]bool{
	"null": true, "zero": true, "full": true, "random": true, "urandom": true,
	"tty": true, "ptmx": true, "tun": true,
}

func hardware(Fixture) (Verdict, string) {
	var found []string
	for _, dir := range []string{"/dev", "/dev/net"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.Type()&os.ModeDevice != 0 && !harmless[e.Name()] {
				found = append(found, e.Name())
			}
		}
	}
	if found != nil {
		return Hole, strings.Join(found, " ")
	}
	return Absent, "none"
}

// fsImmutable is FS_IMMUTABLE_FL of linux/fs.h.
const fsImmutable = 0x10

// immutable sets FS_IMMUTABLE_FL on a file of its own and takes it off again.
func immutable(Fixture) (Verdict, string) {
	return inFile(func(f *os.File) (Verdict, string) {
		flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return judge(err, "")
		}
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)|fsImmutable); err != nil {
			return judge(err, "")
		}
		return judge(unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags)), "set")
	})
}

func xattr(name string) (Verdict, string) {
	return inFile(func(f *os.File) (Verdict, string) {
		return judge(unix.Fsetxattr(int(f.Fd()), name, []byte("x"), 0), "set")
	})
}

// freeze asks an overlay only: it has no freeze operation and answers
// EOPNOTSUPP to who may ask, while a real filesystem would stop the machine.
func freeze(Fixture) (Verdict, string) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/", &fs); err != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return Absent, "/ is no overlay"
	}
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge(err, "")
	}
	defer unix.Close(fd)
	const fifreeze = 0xc0045877 // _IOWR('X', 119, int) of linux/fs.h
	return reached(unix.IoctlSetInt(fd, fifreeze, 0))
}

func inFile(f func(*os.File) (Verdict, string)) (Verdict, string) {
	file, err := os.CreateTemp("/tmp", "escape-")
	if err != nil {
		return Absent, "no scratch file: " + errno(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return f(file)
}
