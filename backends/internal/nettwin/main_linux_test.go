package nettwin

import (
	"os"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) {
	if os.Args[0] == relay.Argv0 {
		relay.Main()
	}
	nstest.Main(m)
}
