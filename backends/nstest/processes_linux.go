package nstest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

type process struct {
	pid  int
	comm string
}

// processes lists the machine's processes that keep accepts, this one apart.
// One that ends while it is looked at is left out.
func processes(keep func(dir string) bool) []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var ps []process
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() || !keep(dir) {
			continue
		}
		comm, err := os.ReadFile(dir + "/comm")
		if err != nil {
			continue
		}
		ps = append(ps, process{pid, strings.TrimSpace(string(comm))})
	}
	return ps
}

// inhabitants lists the processes that live in the mount namespace, or, when it
// is the test's own, in the network namespace.
func inhabitants(mnt, net *os.File, ownNet bool) []process {
	m, n := nsID(mnt), nsID(net)
	return processes(func(dir string) bool {
		if dead(dir) {
			return false
		}
		if id, err := os.Readlink(dir + "/ns/mnt"); err == nil && id == m {
			return true
		}
		id, err := os.Readlink(dir + "/ns/net")
		return ownNet && err == nil && id == n
	})
}

// nsID is the text of a namespace link, "net:[4026531840]", of an open file.
func nsID(f *os.File) string {
	id, err := os.Readlink(fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd()))
	if err != nil {
		return "gone"
	}
	return id
}

// dead reports a zombie: it lives nowhere, its parent has only not waited yet.
func dead(dir string) bool {
	return statField(dir, 0) == "Z"
}

// statField returns a field of proc_pid_stat(5), counted after the command name,
// which may itself hold spaces and parentheses.
func statField(dir string, n int) string {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return ""
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return ""
	}
	f := strings.Fields(string(b[i+1:]))
	if n >= len(f) {
		return ""
	}
	return f[n]
}

// stray lists processes that this run started and that are still there: its
// children, and those that carry its tag in their environment.
func stray() []process {
	parent := strconv.Itoa(os.Getpid())
	tag := []byte(runTag + "=" + parent)
	return processes(func(dir string) bool {
		if dead(dir) {
			return false
		}
		if statField(dir, 1) == parent {
			return true
		}
		env, err := os.ReadFile(dir + "/environ")
		if err != nil {
			return false
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(v, tag) {
				return true
			}
		}
		return false
	})
}
