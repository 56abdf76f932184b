package execlog

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// holders says who has a flock on a file, for the message of the one who has
// not. It is read from /proc/locks and not from the file: several may share a
// lock, and a text in the file outlives who wrote it.
func holders(f *os.File) string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ""
	}
	b, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	var who []string
	// 1: FLOCK  ADVISORY  WRITE 4242 08:01:131 0 EOF
	for line := range strings.Lines(string(b)) {
		w := strings.Fields(line)
		if len(w) < 6 || w[1] != "FLOCK" {
			continue
		}
		pid, err := strconv.Atoi(w[4])
		// The device is not compared: some filesystems show another one in stat(2)
		// than the kernel has in its own structures.
		if err == nil && pid > 0 && strings.HasSuffix(w[5], ":"+strconv.FormatUint(st.Ino, 10)) {
			who = append(who, fmt.Sprintf("pid %d (%s)", pid, command(pid)))
		}
	}
	return strings.Join(who, ", ")
}

// command names a process by its program and verb; the rest of its arguments
// may hold secrets.
func command(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	argv := bytes.Split(b, []byte{0})
	if err != nil || len(argv) < 2 {
		return "ended"
	}
	name := escape(string(argv[0][bytes.LastIndexByte(argv[0], '/')+1:]))
	if verb := string(argv[1]); isWord(verb) {
		name += " " + verb
	}
	return name
}

func isWord(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '-' && r != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 20
}

// datasync makes what was written readable after a power cut. The time stamps,
// which fsync(2) would write besides, are of no use.
func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
