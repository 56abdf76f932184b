package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/netsandbox/netsandbox/backends"
)

// Doctor finds out what this machine can do by doing it in a scratch place:
// versions and configuration files say what a kernel should be able to, and
// containers, security modules and device rules say otherwise.
//
// It changes nothing that anything else on the machine can see, and leaves
// nothing behind.
type Doctor struct{}

// answerWithin bounds one check: a filesystem that does not answer must become
// a line, not a hang.
const answerWithin = 5 * time.Second

// check is one ability. try does the thing and returns what there is to say.
type check struct {
	name string
	// without is the status when try fails: "missing" where there is no view
	// without it, "degraded" where there is a lesser one.
	without string
	fix     string
	try     func(ctx context.Context, stateRoot string) (detail string, err error)
}

var checks = slices.Concat(processChecks, fileChecks, shiftedChecks, networkChecks)

// Probe implements [backends.Prober].
func (Doctor) Probe(ctx context.Context, stateRoot string) []backends.Finding {
	var found []backends.Finding
	for _, c := range checks {
		found = append(found, c.run(ctx, stateRoot))
	}
	found = append(found, idmapFindings(ctx, stateRoot)...)
	found = append(found, hostFindings(ctx)...)
	return append(found, leftovers(ctx, stateRoot)...)
}

func (c check) run(ctx context.Context, stateRoot string) backends.Finding {
	f := backends.Finding{Name: c.name, Status: "ok"}
	err := limited(ctx, func(ctx context.Context) (err error) {
		f.Detail, err = c.try(ctx, stateRoot)
		return err
	})
	if err != nil {
		return backends.Finding{Name: c.name, Status: c.without, Detail: err.Error(), Fix: c.advice(err)}
	}
	return f
}

// errNoRootMount is a root directory that is none of the mounts. There neither
// mounts can be made private nor user namespaces be made, whatever the kernel can.
var errNoRootMount = errors.New("/ is not a mount, as in a chroot")

// advice is the fix of the check, unless something else stands before it.
func (c check) advice(err error) string {
	switch {
	case errors.Is(err, errNoRootMount):
		return "run where / is a mount: on the machine, in a container or in systemd-nspawn"
	case os.Geteuid() != 0 && c.name != "privileges":
		return "sudo netsandbox doctor says whether root can"
	}
	return c.fix
}

// limited runs f on a thread of its own, which dies with whatever namespaces
// and restrictions f put on it. When f does not answer in time it is left
// behind, and what it still writes is nobody's.
func limited(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer: %w", ctx.Err())
	}
}

var _ backends.Prober = Doctor{}
