package main

import (
	"os"
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
	nstest.Main(m)
}
