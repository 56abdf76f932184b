package canary

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

// The statuses a shell gives for a command that did not start, and ours.
const (
	notOurs       = 125
	notExecutable = 126
	notFound      = 127
)

// start runs the command of the job under its own credentials. Without a pid
// the report says why.
func start(j job, out int, mode harden.Mode) (pid int, rep report) {
	env, dirs := unpack(j.Env), []string{string(j.Cwd)}
	if j.Login {
		who := account(j.UID)
		env = loginEnv(who, env)
		dirs = append(dirs, who.home, "/")
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, report{Exit: notOurs, Err: "open /dev/null: " + err.Error()}
	}
	defer unix.Close(null)
	limits, err := limits(mode.UserNS())
	if err != nil {
		return 0, report{Exit: notOurs, Err: err.Error()}
	}
	argv := unpack(j.Argv)
	c := rawfork.Command{
		Paths: candidates(argv[0], env), Argv: argv, Env: env,
		UID: j.UID, GID: j.GID, Groups: j.Groups,
		Files: [3]int{null, out, out}, Terminal: -1, Umask: 0o022, Limits: limits, Cgroup: -1,
	}
	for _, c.Dir = range dirs {
		if pid, err = c.Start(); err == nil {
			return pid, report{}
		}
		var step *rawfork.StepError
		if !errors.As(err, &step) || step.Step != rawfork.StepDir {
			break
		}
	}
	return 0, explain(err, argv[0], dirs[0])
}

func explain(err error, name, dir string) report {
	var step *rawfork.StepError
	if !errors.As(err, &step) {
		return report{Exit: notOurs, Err: err.Error()}
	}
	switch {
	case step.Step == rawfork.StepDir:
		return report{Exit: notOurs, Err: fmt.Sprintf("working directory %s: %v", dir, step.Err)}
	case step.Step != rawfork.StepExec:
		return report{Exit: notOurs, Err: err.Error()}
	case errors.Is(step.Err, unix.ENOENT), errors.Is(step.Err, unix.ENOTDIR):
		return report{Exit: notFound, Err: name + ": not found"}
	}
	return report{Exit: notExecutable, Err: fmt.Sprintf("%s: %v", name, step.Err)}
}

// resources is RLIM_NLIMITS of linux/resource.h.
const resources = 16

// maxProcesses stops a fork bomb before the machine notices.
const maxProcesses = 4096

// limits are ours, by resource number, without core files. The Go runtime has
// raised NOFILE for itself, which is not the probe's. Processes are bounded only
// when they are counted by user namespace and uid (Linux 5.14): otherwise those
// of the same user on the host would count.
func limits(ownUsers bool) ([]unix.Rlimit, error) {
	all := make([]unix.Rlimit, resources)
	for i := range all {
		if err := unix.Getrlimit(i, &all[i]); err != nil {
			return nil, fmt.Errorf("read limit %d: %w", i, err)
		}
	}
	all[unix.RLIMIT_CORE] = unix.Rlimit{}
	all[unix.RLIMIT_NOFILE].Cur = min(1024, all[unix.RLIMIT_NOFILE].Max)
	if nproc := &all[unix.RLIMIT_NPROC]; ownUsers {
		nproc.Cur, nproc.Max = min(nproc.Cur, maxProcesses), min(nproc.Max, maxProcesses)
	}
	return all, nil
}

// candidates are the paths that a command name stands for.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	var all []string
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "." // an empty element is the working directory
		}
		all = append(all, dir+"/"+name)
	}
	return all
}
