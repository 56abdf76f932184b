package workflow

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
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

// process returns name and parent of a process.
func process(pid int) (comm string, ppid int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "", 0, err
	}
	f, err := statFields(pid)
	if err != nil {
		return "", 0, err
	}
	ppid, err = strconv.Atoi(f[1])
	return strings.TrimSpace(string(b)), ppid, err
}

// statFields returns the fields of proc_pid_stat(5) from the third, the state,
// on. The name before them stands in parentheses and may itself contain some.
func statFields(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return nil, fmt.Errorf("parse /proc/%d/stat", pid)
	}
	return f, nil
}

// sessionID returns the session of a process, or 0 when it cannot be read.
func sessionID(pid int) int {
	f, err := statFields(pid)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(f[3])
	return n
}

// startTime returns when a process began, in clock ticks since boot.
func startTime(pid int) (uint64, error) {
	f, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(f[19], 10, 64)
}
