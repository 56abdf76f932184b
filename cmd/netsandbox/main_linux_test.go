package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/linuxns"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
)

// TestMain lets the test binary stand in for the programs that scripts run: under
// its own name it runs the tests, as netsandbox it is netsandbox, with every
// process that netsandbox starts of itself, and as lab a few simple tools.
func TestMain(m *testing.M) {
	linuxns.Main()
	faultfs.Main()
	again := len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__")
	switch name := filepath.Base(os.Args[0]); {
	case name == "netsandbox" || again:
		main()
	case name == "lab":
		os.Exit(lab(os.Args[1:]))
	}
	// A shell starts what it runs in the background with interrupts ignored, and
	// that goes on to every child: the scripts would wait for good for the servers
	// that they interrupt.
	if signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	nstest.Main(m)
}
