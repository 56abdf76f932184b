package faultfs

import (
	"errors"
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
		{"source", "faultfs"}, {"fd", strconv.Itoa(int(conn.Fd()))},
		{"rootmode", "40000"}, {"user_id", "0"}, {"group_id", "0"},
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

// attach gives a file a loop device that is freed with its last user, and
// returns it open.
func attach(image int) (*os.File, error) {
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	for {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		loop, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		c := unix.LoopConfig{Fd: uint32(image), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(c.Info.File_name[:], "faultfs")
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &c)
		if err == nil {
			return loop, nil
		}
		loop.Close()
		if !errors.Is(err, unix.EBUSY) { // somebody else was faster
			return nil, fmt.Errorf("configure %s: %w", loop.Name(), err)
		}
	}
}
