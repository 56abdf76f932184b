package relay

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory bounds what hostile frames can make the process take. The Go runtime
// collects to stay below the soft limit it got in its environment (GOMEMLIMIT);
// past the hard one it dies, and the twin is cut.
const (
	softMemory = "128MiB"
	hardMemory = 512 << 20
)

// confine gives away everything that the relay does not need to carry packets:
// an empty root, no new files to execute, one capability, a short list of system
// calls less. It is called once, before the first frame is read.
func confine() error {
	// RLIMIT_AS would count the address space that the runtime reserves and never
	// touches, so the limit is on writable private memory.
	lim := unix.Rlimit{Cur: hardMemory, Max: hardMemory}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &lim); err != nil {
		return fmt.Errorf("limit memory: %w", err)
	}
	if err := emptyRoot(); err != nil {
		return err
	}
	if err := everyThread(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set not dumpable: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	return denySyscalls()
}

// emptyRoot moves the process, which was started in a mount namespace of its
// own, onto an empty read-only tmpfs and detaches everything else.
func emptyRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// Any directory will do as a mount point; nothing outside this namespace sees it.
	if err := unix.Mount("tmpfs", "/proc", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,mode=000"); err != nil {
		return fmt.Errorf("mount empty root: %w", err)
	}
	if err := unix.Chdir("/proc"); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot to empty root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach old root: %w", err)
	}
	return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// dropCapabilities keeps CAP_NET_RAW, by which a socket is marked (5.17 and later)
// and echo requests are sent where the host has no ping sockets, and nothing else:
// not even the right to change the network the process lives in. The filter of system calls takes from it what it
// would give beyond that.
func dropCapabilities() error {
	const keep = 1 << unix.CAP_NET_RAW
	for c := uintptr(0); c <= 63; c++ {
		// EINVAL ends the list of capabilities that the kernel knows.
		if err := everyThread(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c); err != nil {
			break
		}
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: keep, Permitted: keep}}
	err := everyThread(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])))
	runtime.KeepAlive(&data)
	runtime.KeepAlive(&hdr)
	if err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
