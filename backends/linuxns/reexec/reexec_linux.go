package reexec

import (
	"os"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/initd"
)

func init() {
	if len(os.Args) > 0 && os.Args[0] == initd.Argv0 {
		initd.Main()
	}
}
