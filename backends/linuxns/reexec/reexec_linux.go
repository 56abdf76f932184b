package reexec

import (
	"os"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/initd"
)

func init() {
	if len(os.Args) > 0 && os.Args[0] == builder.InitArgv0 {
		initd.Main()
	}
}
