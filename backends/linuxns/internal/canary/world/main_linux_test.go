package world

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/escape"
	_ "github.com/netsandbox/netsandbox/backends/linuxns/reexec" // PID 1 of every world
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// machineArgv0 makes this test binary a machine: a process in network and mount
// namespaces of its own that makes worlds as a holder does. Only so is the
// "host" of a jail one that may be tried to be changed.
const machineArgv0 = "world-test-machine"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == escape.Name {
		escape.Main()
		return
	}
	switch os.Args[0] {
	case relay.Argv0:
		relay.Main()
	case machineArgv0:
		exit(becomeMachine())
	}
	nstest.Main(m)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
