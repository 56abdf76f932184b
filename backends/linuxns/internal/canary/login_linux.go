package canary

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// defaultPath is what login(1) gives on the distributions we know.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// entry is what a login needs of a line in passwd(5).
type entry struct{ name, home, shell string }

// account looks a uid up in the world's own file. Accounts of a directory
// service are not found: its daemon is not in a throw-away view.
func account(uid uint32) entry {
	e := entry{home: "/", shell: "/bin/sh"}
	eachLine("/etc/passwd", func(line string) bool {
		f := strings.Split(line, ":")
		if len(f) < 7 || f[2] != strconv.FormatUint(uint64(uid), 10) {
			return true
		}
		e.name = f[0]
		if f[5] != "" {
			e.home = f[5]
		}
		if f[6] != "" {
			e.shell = f[6]
		}
		return false
	})
	return e
}

// loginEnv is what a new session of the account would begin with, as
// pam_env(8) makes it from /etc/environment, with extra on top.
func loginEnv(who entry, extra []string) []string {
	env := newEnviron()
	env.set("PATH", defaultPath)
	env.set("HOME", who.home)
	env.set("SHELL", who.shell)
	if who.name != "" {
		env.set("USER", who.name)
		env.set("LOGNAME", who.name)
	}
	eachLine("/etc/environment", func(line string) bool {
		if key, value, ok := assignment(line); ok {
			env.set(key, value)
		}
		return true
	})
	for _, kv := range extra {
		if key, value, ok := strings.Cut(kv, "="); ok {
			env.set(key, value)
		}
	}
	return env.list()
}

// assignment reads one line of /etc/environment: KEY=VAL, with an optional
// "export", quotes around the value, and comments on lines of their own.
func assignment(line string) (key, value string, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", "", false
	}
	line = strings.TrimSpace(strings.TrimPrefix(line, "export "))
	key, value, ok = strings.Cut(line, "=")
	if !ok || key == "" || strings.ContainsAny(key, " \t\"'") {
		return "", "", false
	}
	value = strings.TrimSpace(value)
	if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		value = value[1 : len(value)-1]
	}
	return key, value, true
}

// environ keeps the order of first mention and the value of the last.
type environ struct {
	order  []string
	values map[string]string
}

func newEnviron() *environ { return &environ{values: map[string]string{}} }

func (e *environ) set(key, value string) {
	if _, known := e.values[key]; !known {
		e.order = append(e.order, key)
	}
	e.values[key] = value
}

func (e *environ) list() []string {
	var kvs []string
	for _, key := range e.order {
		kvs = append(kvs, key+"="+e.values[key])
	}
	return kvs
}

// eachLine calls f until it returns false. A file that is not there has none:
// what it would say is then what the probe is to find out.
func eachLine(path string, f func(line string) bool) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		if !f(s.Text()) {
			return
		}
	}
}
