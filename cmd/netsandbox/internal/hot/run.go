package hot

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/linuxns/client"
	"github.com/netsandbox/netsandbox/workflow/execlog"
)

// Failed is the status when netsandbox itself failed or refused.
const Failed = client.StatusFailed

func init() {
	if len(os.Args) == 0 {
		return
	}
	r, ok, err := Parse(os.Args[1:])
	if !ok || err != nil {
		return
	}
	// An init function runs on a goroutine that is wired to the main thread, so
	// every wake-up of it is a switch of threads; the command is served elsewhere.
	status := make(chan int)
	go func() { status <- Run(r) }()
	os.Exit(<-status)
}

// Run runs the request and returns the status to exit with. What it has to say
// itself is one line on stderr.
func Run(r Request) int {
	status, err := run(r)
	if err != nil {
		fmt.Fprintf(os.Stderr, "netsandbox: %s\n", change.Escape(err.Error()))
	}
	return status
}

func run(r Request) (status int, err error) {
	signals := client.Catch()
	spec, err := load(r)
	if err != nil {
		return Failed, err
	}
	req, err := request(r)
	if err != nil {
		return Failed, err
	}
	log, err := execlog.Start(spec.Dir, execlog.Intent{Argv: req.Argv, UID: uint32(os.Getuid()), Cwd: req.Cwd, Detach: r.Detach})
	if err != nil {
		return Failed, fmt.Errorf("%s: %w", spec.Name, err)
	}
	// Holder and PID 1 get the connection while the disk takes the record; the
	// command is sent afterwards.
	status, err = client.Run(context.Background(), spec, req, signals, func() error {
		if err := log.Durable(); err != nil {
			return fmt.Errorf("%s: %w", spec.Name, err)
		}
		return nil
	})
	if status == 0 && err != nil {
		status = Failed
	}
	if e := log.End(status); e != nil {
		err = errors.Join(err, fmt.Errorf("record the end of the command: %w", e))
	}
	return status, err
}

// request is what to run with the caller's surroundings.
func request(r Request) (client.Request, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return client.Request{}, fmt.Errorf("find working directory: %w", err)
	}
	req := client.Request{
		Argv: r.Argv, Env: os.Environ(), Cwd: cwd, Detach: r.Detach,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if r.Verb == "enter" {
		req.Argv, req.Env = shell(r, req.Env)
	}
	return req, nil
}
