package escape

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// systemCalls must be refused before they look at their arguments. The
// arguments are such that a kernel which goes on fails, or changes nothing.
var systemCalls = []probe{
	{"reboot", call(unix.SYS_REBOOT, 0xbad, 0, 0)},
	{"kexec_load", call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff)}, // no such flags; no segments would unload an image
	{"kexec_file_load", call(unix.SYS_KEXEC_FILE_LOAD, none, none, 0, 0, 0xffff)},
	{"init_module", call(unix.SYS_INIT_MODULE, text("xx"), 2, text(""))},
	{"finit_module", call(unix.SYS_FINIT_MODULE, none, text(""), 0)},
	{"delete_module", call(unix.SYS_DELETE_MODULE, text("netsandbox_no_such_module"), 0)},
	{"swapon", call(unix.SYS_SWAPON, text("/nonexistent"), 0)},
	{"swapoff", call(unix.SYS_SWAPOFF, text("/nonexistent"))},
	{"acct", call(unix.SYS_ACCT, text("/nonexistent"))}, // NULL would stop the host's accounting
	{"quotactl", call(unix.SYS_QUOTACTL, 0x80000400, text("/nonexistent"), 0, 0)},
	{"settimeofday", call(unix.SYS_SETTIMEOFDAY, words(0, 1<<40), 0)},
	{"clock_settime", call(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, words(0, 1<<40))},
	{"adjtimex", adjtime},
	{"syslog", call(unix.SYS_SYSLOG, 10, 0, 0)}, // SYSLOG_ACTION_SIZE_BUFFER
	{"keyctl", call(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, none-2, 0)},
	{"add_key", addKey},
	{"request_key", call(unix.SYS_REQUEST_KEY, text("user"), text("netsandbox-none"), 0, 0)},
	{"bpf", loadProgram},
	{"perf_event_open", descriptor(unix.SYS_PERF_EVENT_OPEN, perfClock(), 0, none, none, 0)},
	{"userfaultfd", descriptor(unix.SYS_USERFAULTFD, unix.O_CLOEXEC)},
	{"io_uring_setup", descriptor(unix.SYS_IO_URING_SETUP, 1, zeroes(120))},
	{"fanotify_init", descriptor(unix.SYS_FANOTIFY_INIT, unix.FAN_CLASS_CONTENT, 0)},
	{"lookup_dcookie", call(unix.SYS_LOOKUP_DCOOKIE, 0, zeroes(64), 64)},
	{"vhangup", call(unix.SYS_VHANGUP)}, // we have no terminal to hang up
	{"open_by_handle_at", openByHandle},
	{"setns", setOwnNet},
}

// none is -1 as an argument.
const none = ^uintptr(0)

// call tries one system call on a thread that ends with it, so that whatever
// it gave the thread is gone.
func call(nr uintptr, args ...any) func(Fixture) (Verdict, string) {
	return func(Fixture) (Verdict, string) {
		_, err := invoke(nr, args)
		return reached(err)
	}
}

// descriptor is call for those that return one.
func descriptor(nr uintptr, args ...any) func(Fixture) (Verdict, string) {
	return func(Fixture) (Verdict, string) {
		fd, err := invoke(nr, args)
		if err == nil {
			unix.Close(int(fd))
		}
		return reached(err)
	}
}

func invoke(nr uintptr, args []any) (r uintptr, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var a [6]uintptr
		for i, arg := range args {
			switch arg := arg.(type) {
			case int:
				a[i] = uintptr(arg)
			case uintptr:
				a[i] = arg
			case *byte:
				a[i] = uintptr(unsafe.Pointer(arg))
			}
		}
		var e unix.Errno
		if r, _, e = unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
			err = e
		}
		runtime.KeepAlive(args)
	}()
	<-done
	return r, err
}

// text is a NUL-terminated string, words a struct of longs, zeroes a struct of
// which nothing is set; each on the heap, where it does not move.
func text(s string) *byte {
	p, _ := unix.BytePtrFromString(s)
	return p
}

func words(w ...uint64) *byte { return (*byte)(unsafe.Pointer(unsafe.SliceData(w))) }

func zeroes(n int) *byte { return unsafe.SliceData(make([]byte, n)) }

// adjtime sets the tick to what it is. Reading it is refused as well.
func adjtime(Fixture) (Verdict, string) {
	var tx unix.Timex
	if _, err := unix.Adjtimex(&tx); err != nil {
		return reached(err)
	}
	tx.Modes = unix.ADJ_TICK
	_, err := unix.Adjtimex(&tx)
	return reached(err)
}

// addKey leaves nothing: the key goes to the process's own keyring.
func addKey(Fixture) (Verdict, string) {
	_, err := unix.AddKey("user", "netsandbox-escape", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	return reached(err)
}

// loadProgram loads "r0 = 0; exit" as a socket filter and forgets it.
func loadProgram(Fixture) (Verdict, string) {
	program := []uint64{0x00000000000000b7, 0x0000000000000095}
	license := text("GPL")
	attr := struct {
		kind, count        uint32
		insns, license     uint64
		logLevel, logSize  uint32
		log                uint64
		kernVersion, flags uint32
		rest               [64]byte
	}{
		kind: unix.BPF_PROG_TYPE_SOCKET_FILTER, count: uint32(len(program)),
		insns: uint64(uintptr(unsafe.Pointer(&program[0]))), license: uint64(uintptr(unsafe.Pointer(license))),
	}
	fd, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), 48)
	runtime.KeepAlive(program)
	runtime.KeepAlive(license)
	if e != 0 {
		return reached(e)
	}
	unix.Close(int(fd))
	return Hole, "loaded"
}

// perfClock is a struct perf_event_attr of a software clock.
func perfClock() *byte {
	attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK}
	attr.Size = uint32(unsafe.Sizeof(*attr))
	return (*byte)(unsafe.Pointer(attr))
}

// openByHandle opens /dev/null by its handle; with another handle it could be
// any file of that filesystem.
func openByHandle(Fixture) (Verdict, string) {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/dev/null", 0)
	if err != nil {
		return Absent, "no handle: " + errno(err)
	}
	dir, err := unix.Open("/dev", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return judge(err, "")
	}
	defer unix.Close(dir)
	fd, err := unix.OpenByHandleAt(dir, handle, unix.O_RDONLY|unix.O_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return reached(err)
}

// setOwnNet enters the network namespace the thread is in.
func setOwnNet(Fixture) (Verdict, string) {
	return apart(func() (Verdict, string) {
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return judge(err, "")
		}
		defer unix.Close(fd)
		return allowed(judge(unix.Setns(fd, unix.CLONE_NEWNET), "OK"))
	})
}
