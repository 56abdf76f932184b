package nettwin

import (
	"fmt"
	"os"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) {
	if os.Args[0] == relay.Argv0 {
		relay.Main()
	}
	if os.Getenv(holderEnv) != "" {
		fmt.Fprintln(os.Stderr, "holder:", holder())
		os.Exit(1)
	}
	nstest.Main(m)
}
