package fsid

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// uuid is struct fsuuid2 of linux/fs.h.
type uuid struct {
	len   uint8
	bytes [16]byte
}

// getUUID is FS_IOC_GETFSUUID (Linux 6.9): _IOR(0x15, 0, struct fsuuid2).
const getUUID = 2<<30 | 17<<16 | 0x15<<8

// Of returns the identity of the filesystem that an open directory is on, empty
// when it has none.
func Of(fd int) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return "", fmt.Errorf("look at filesystem: %w", err)
	}
	number := ""
	if fs.Fsid.Val[0] != 0 || fs.Fsid.Val[1] != 0 {
		number = fmt.Sprintf("%08x%08x", uint32(fs.Fsid.Val[0]), uint32(fs.Fsid.Val[1]))
	}
	var u uuid
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), getUUID, uintptr(unsafe.Pointer(&u)))
	id := ""
	switch {
	case e == 0 && u.len == 16:
		id = fmt.Sprintf("uuid:%x", u.bytes)
		if fs.Type == unix.BTRFS_SUPER_MAGIC {
			id += "/" + number // the subvolume's
		}
	case e != 0 && !noAnswer(e):
		return "", fmt.Errorf("ask filesystem for its uuid: %w", e)
	case number != "" && fs.Type != unix.XFS_SUPER_MAGIC: // there it is the device number
		id = "fsid:" + number
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.RAMFS_MAGIC {
		return id, nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return inMemory + strings.TrimSpace(string(boot)) + "/" + id, nil
}

func noAnswer(e unix.Errno) bool {
	return errors.Is(e, unix.ENOTTY) || errors.Is(e, unix.EOPNOTSUPP) || errors.Is(e, unix.EINVAL) || errors.Is(e, unix.ENOSYS)
}
