package idle

import (
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// after is how long nothing has to happen.
const after = 3 * time.Second

// Timer waits for a process to idle. Its zero value is not useful.
type Timer struct {
	t     *time.Timer
	pages []span
}

// span is a part of the program's file that is mapped read-only.
type span struct{ start, end uintptr }

// New starts a timer. It looks at the process's mappings now, because later the
// process may be confined; that they cannot be read only costs memory.
func New() *Timer {
	t := &Timer{pages: readOnly()}
	t.t = time.AfterFunc(after, t.trim)
	return t
}

// Touch says that something happened.
func (t *Timer) Touch() { t.t.Reset(after) }

// trim returns the heap that is not used, and the pages of the program that its
// start has touched: they are in the page cache and come back when they are
// needed, and the program is large.
func (t *Timer) trim() {
	debug.FreeOSMemory()
	for _, s := range t.pages {
		unix.Syscall(unix.SYS_MADVISE, s.start, s.end-s.start, unix.MADV_DONTNEED)
	}
}

// readOnly finds the program's own mappings that nothing was ever written to.
// Writable ones hold the program's variables; to drop those would reset them.
func readOnly() []span {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	// One address that is surely in the program's text, to know its file by.
	here := reflect.ValueOf(readOnly).Pointer()
	var spans []span
	var inodes []string
	own := ""
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[4] == "0" {
			continue
		}
		var s span
		if _, err := fmt.Sscanf(f[0], "%x-%x", &s.start, &s.end); err != nil {
			continue
		}
		file := f[3] + " " + f[4] // device and inode
		if s.start <= here && here < s.end {
			own = file
		}
		if f[1] == "r-xp" || f[1] == "r--p" {
			spans, inodes = append(spans, s), append(inodes, file)
		}
	}
	var out []span
	for i, s := range spans {
		if own != "" && inodes[i] == own {
			out = append(out, s)
		}
	}
	return out
}
