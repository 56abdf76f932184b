package escape

import (
	"golang.org/x/sys/unix"
)

// archSystemCalls are those only this architecture has.
var archSystemCalls = []probe{
	{"iopl", call(unix.SYS_IOPL, 3)},
	{"ioperm", call(unix.SYS_IOPERM, 0x80, 1, 1)},
	// The x32 numbers are a second way to every call; a filter that compares
	// numbers must know them. See seccomp(2).
	{"reboot by its x32 number", call(0x40000000|unix.SYS_REBOOT, 0xbad, 0, 0)},
	{"init_module by its x32 number", call(0x40000000|unix.SYS_INIT_MODULE, text("xx"), 2, text(""))},
}
