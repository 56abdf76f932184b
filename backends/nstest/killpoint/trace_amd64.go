//go:build linux

package killpoint

import "golang.org/x/sys/unix"

// The calls on names that only older architectures have.
func init() {
	for nr, name := range map[uint64]string{
		unix.SYS_RENAME: "rename", unix.SYS_UNLINK: "unlink", unix.SYS_RMDIR: "rmdir",
		unix.SYS_MKDIR: "mkdir", unix.SYS_SYMLINK: "symlink", unix.SYS_LINK: "link",
	} {
		durable[nr] = name
	}
}
