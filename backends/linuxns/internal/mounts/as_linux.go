package mounts

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As runs f with the file-system ids of the calling thread set to id and all
// capabilities kept; the goroutine must be locked to its thread.
//
// An overlay does its work with the credentials of whoever mounted it. Mounted
// by uid 0 over idmapped layers, which do not map that id, it cannot make its
// work directory and comes up read-only without an error.
func As(id int, f func() error) error {
	if id == 0 {
		return f()
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	syscall.RawSyscall(unix.SYS_SETFSGID, uintptr(id), 0, 0)
	syscall.RawSyscall(unix.SYS_SETFSUID, uintptr(id), 0, 0)
	defer func() {
		syscall.RawSyscall(unix.SYS_SETFSUID, 0, 0, 0)
		syscall.RawSyscall(unix.SYS_SETFSGID, 0, 0, 0)
	}()
	// Leaving fsuid 0 clears the file capabilities from the effective set.
	_, _, e := syscall.RawSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return fmt.Errorf("keep capabilities: %w", e)
	}
	return f()
}
