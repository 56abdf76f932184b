package harden

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Threads reports whether the process can change all of its threads at once,
// which everything here comes down to.
func Threads() error {
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_GET_DUMPABLE, 0, 0)
	if e == unix.ENOTSUP {
		return errors.New("this program was built with cgo, which hides threads from the Go runtime: build it with CGO_ENABLED=0")
	}
	if e != 0 {
		return fmt.Errorf("reach all threads: %w", e)
	}
	return nil
}

// DropCaps takes the capabilities of m from the bounding set of every thread,
// and from the sets that the threads hold.
func (m Mode) DropCaps() error { return drop(m.Drop) }

func drop(caps []int) error {
	if len(caps) == 0 {
		return nil
	}
	for _, c := range caps {
		if _, _, e := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); e != 0 {
			return fmt.Errorf("drop capability %d: %w", c, e)
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for _, c := range caps {
		d, bit := &data[c/32], uint32(1)<<(c%32)
		d.Effective &^= bit
		d.Permitted &^= bit
		d.Inheritable &^= bit
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return fmt.Errorf("set capabilities: %w", e)
	}
	return nil
}
