package faultfs

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mountFUSE mounts the filesystem that answers on conn, nowhere, and returns its
// root: it lives as long as somebody has a file of it open, here the loop device.
func mountFUSE(conn *os.File) (*os.File, error) {
	fs, err := unix.Fsopen("fuse", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	for _, o := range [][2]string{
		{"source", "faultfs"},
		{"fd", strconv.Itoa(int(conn.Fd()))},
		{"rootmode", "40000"},
		{"user_id", "0"},
		{"group_id", "0"},
	} {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return nil, fmt.Errorf("set %s of fuse: %w", o[0], err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MS_NOSUID|unix.MS_NODEV)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	return os.NewFile(uintptr(fd), "fuse"), nil
}
