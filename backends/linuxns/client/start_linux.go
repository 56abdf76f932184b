package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/regular"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// HolderArgv0 makes the running program an environment's holder when it is
// re-executed.
const HolderArgv0 = "netsandbox-holder"

// Start starts the environment's holder unless one lives, and returns when it
// serves.
func Start(ctx context.Context, spec backends.Spec) error {
	dir := envdir.Dir(spec.Dir)
	lock, err := dir.Lock(envdir.StartLock, true)
	if err != nil {
		return fmt.Errorf("start holder: %w", err)
	}
	defer lock.Close()
	if c, err := wire.Dial(spec.Dir, envdir.ExecSocket); err == nil { // somebody was faster
		return c.Close()
	}
	if err := spawn(ctx, dir, spec); err != nil {
		return fmt.Errorf("start holder of %s: %w", spec.Name, err)
	}
	return nil
}

// spawn runs the holder in a session of its own and waits for its reply. It has
// no use for the caller's environment, which may hold secrets and would be
// readable for as long as the holder lives.
func spawn(ctx context.Context, dir envdir.Dir, spec backends.Spec) error {
	log, err := regular.Open(dir.Path(envdir.Log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	in, give, err := os.Pipe()
	if err != nil {
		return err
	}
	defer give.Close()
	take, out, err := os.Pipe()
	if err != nil {
		in.Close()
		return err
	}
	defer take.Close()
	// What we were started with must not live on in the holder: a pipe of the
	// caller's shell would never end.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close descriptors: %w", err)
	}
	p, err := os.StartProcess("/proc/self/exe", []string{HolderArgv0}, &os.ProcAttr{
		// The Go runtime would keep files of the caller's cgroup open.
		Dir: "/", Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"},
		Files: []*os.File{in, out, log}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	in.Close()
	out.Close()
	if err != nil {
		return err
	}
	go p.Wait() // it may outlive us; a failed one is reaped
	stop := context.AfterFunc(ctx, func() { take.Close() })
	defer stop()
	if err := json.NewEncoder(give).Encode(spec); err != nil {
		return errors.Join(err, p.Kill())
	}
	give.Close()
	var r wire.Reply
	if err := json.NewDecoder(take).Decode(&r); err != nil {
		return errors.Join(fmt.Errorf("read its reply (see %s): %w", dir.Path(envdir.Log), err), ctx.Err(), p.Kill())
	}
	return r.Err()
}
