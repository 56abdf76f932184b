package main

import (
	"fmt"
	"os"

	"github.com/netsandbox/netsandbox/backends/hostfiles"
	"github.com/netsandbox/netsandbox/backends/linuxns"
	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

// options name the concrete parts that a workflow works with.
func (a *app) options() (workflow.Options, error) {
	exe, err := os.Executable()
	if err != nil {
		return workflow.Options{}, fmt.Errorf("find this program: %w", err)
	}
	return workflow.Options{
		Dir: a.stateDir, Clock: clock.Now, Log: a.log, Exe: exe,
		Backend: linuxns.New(), Host: hostfiles.New("/"),
	}, nil
}
