package nstest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// runTag is in the environment of every process that a test run starts, unless
// somebody filters it; leftovers are recognised by it.
const runTag = "NSTEST_RUN"

// Main runs the tests and ends the process. Call it from TestMain. It prints
// how many tests were skipped and why, and names what the run left behind on
// the machine; with -nstest.require a leftover fails the run.
func Main(m *testing.M) {
	// The main goroutine keeps the main thread. Otherwise a test could get it,
	// and /proc/self would show that test's namespaces to the whole process.
	runtime.LockOSThread()
	if err := os.Setenv(runTag, strconv.Itoa(os.Getpid())); err != nil {
		fmt.Fprintf(os.Stderr, "nstest: tag run: %v\n", err)
		os.Exit(1)
	}
	before := snapshot()
	code := m.Run()
	left := leftovers(before)
	for _, l := range left {
		fmt.Fprintf(os.Stderr, "nstest: left behind: %s\n", l)
	}
	if len(left) > 0 && *required && code == 0 {
		code = 1
	}
	announce(skips.line())
	os.Exit(code)
}
