// Command netsandbox rehearses changes of a host in a view, proves that what
// must survive them does, and applies them as trials that undo themselves.
//
// The package is the command line and nothing else: one file a verb, each with
// its flags and one call into package workflow. It is the only place that names
// concrete backends, prints errors and decides exit codes.
package main

import (
	"context"
	"os"

	"github.com/netsandbox/netsandbox/backends/linuxns"
)

func main() {
	linuxns.Main() // does not return where the program was started as a part of a view
	os.Exit(run(context.Background(), os.Args[1:], standard()))
}
