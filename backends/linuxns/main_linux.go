package linuxns

import (
	"os"

	"github.com/netsandbox/netsandbox/backends/internal/deadfs"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/linuxns/client"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/holder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/idle"
	_ "github.com/netsandbox/netsandbox/backends/linuxns/reexec" // PID 1 of a view, before anything else
)

// Main becomes a part of the backend, and does not return, when the program was
// re-executed as one. It is the first thing that main and TestMain call.
func Main() {
	if len(os.Args) == 0 {
		return
	}
	deadfs.Main()
	switch os.Args[0] {
	case client.HolderArgv0:
		holder.Main()
	case builder.LayerArgv0:
		builder.LayerMain()
	case relay.Argv0:
		idle.New() // before it confines itself
		relay.Main()
	}
}
