package nettwin

import (
	"os"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
)

func TestMain(m *testing.M) {
	if os.Args[0] == relay.Argv0 {
		relay.Main()
	}
	os.Exit(m.Run())
}
