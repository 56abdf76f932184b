package workflow

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// callerEnv is the environment that canaries share with the agent: this
// process's own, or below sudo that of the nearest ancestor that is not sudo,
// because sudo drops the very proxy variables that matter. What names this
// session's sockets or sudo itself is left out.
func callerEnv() []string {
	env := os.Environ()
	if os.Getenv("SUDO_COMMAND") != "" {
		if e, err := beforeSudo(os.Getppid()); err == nil {
			env = e
		}
	}
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "NETSANDBOX_ENV" || name == "_" || strings.HasPrefix(name, "SUDO_")
	})
}

// beforeSudo walks up from pid past sudo and returns the environment that its
// caller was started with (proc_pid_environ(5)).
func beforeSudo(pid int) ([]string, error) {
	for range 16 {
		comm, ppid, err := process(pid)
		if err != nil {
			return nil, err
		}
		if comm != "sudo" {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil {
				return nil, err
			}
			return strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00"), nil
		}
		pid = ppid
	}
	return nil, fmt.Errorf("no ancestor outside sudo")
}

// process returns name and parent of a process from proc_pid_stat(5). The name
// stands in the outermost parentheses and may itself contain some.
func process(pid int) (comm string, ppid int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, err
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return "", 0, fmt.Errorf("parse /proc/%d/stat", pid)
	}
	if _, err := fmt.Sscanf(string(b[end+1:]), " %s %d", new(string), &ppid); err != nil {
		return "", 0, fmt.Errorf("parse /proc/%d/stat: %w", pid, err)
	}
	return string(b[open+1 : end]), ppid, nil
}
