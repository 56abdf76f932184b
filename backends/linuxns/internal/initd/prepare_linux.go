package initd

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// terminal is the pseudo-terminal of a command, from the view's own devpts: the
// host's would let the inside push input back into the caller's shell.
type terminal struct{ m, s int }

func (t *terminal) close() {
	if t != nil {
		unix.Close(t.m)
		unix.Close(t.s)
	}
}

// master returns the side for the client.
func (t *terminal) master() []int {
	if t == nil {
		return nil
	}
	return []int{t.m}
}

func openTerminal(uid uint32, rows, cols uint16) (*terminal, error) {
	m, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal in the view: %w", err)
	}
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		unix.Close(m)
		return nil, fmt.Errorf("unlock terminal: %w", err)
	}
	// By descriptor: a path could be a mount of somebody inside.
	s, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		unix.Close(m)
		return nil, fmt.Errorf("open terminal: %w", e)
	}
	t := &terminal{m, int(s)}
	if err := unix.Fchown(t.s, int(uid), -1); err != nil {
		t.close()
		return nil, fmt.Errorf("give terminal to uid %d: %w", uid, err)
	}
	if rows > 0 && cols > 0 {
		unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
	return t, nil
}

// prepare turns a request into a command. The descriptors stay the caller's.
func (s *server) prepare(r wire.Start, body []byte, fds []int, who wire.Caller) (*rawfork.Command, *terminal, error) {
	argv, env, cwd, err := r.Unpack(body)
	if err != nil {
		return nil, nil, err
	}
	cmd := &rawfork.Command{
		Argv: argv, Env: s.environment(env), Dir: cwd,
		UID: who.UID, GID: who.GID, Groups: who.Groups,
		Terminal: -1, Umask: r.Umask & 0o777, Limits: s.clamp(r.Limits),
	}
	cmd.Paths = lookup(argv[0], env)
	var t *terminal
	next := 0
	for i := range cmd.Files {
		if r.TTY[i] {
			if t == nil {
				if t, err = openTerminal(who.UID, r.Rows, r.Cols); err != nil {
					return nil, nil, err
				}
			}
			if cmd.Terminal < 0 {
				cmd.Terminal = i
			}
			cmd.Files[i] = t.s
			continue
		}
		if next == len(fds) {
			return nil, t, errors.New("malformed start request: a descriptor is missing")
		}
		if err := accept(fds[next]); err != nil {
			return nil, t, fmt.Errorf("descriptor %d: %w", i, err)
		}
		cmd.Files[i] = fds[next]
		next++
	}
	return cmd, t, nil
}

// accept refuses a descriptor that opens more than itself: a directory of the
// host is a way into its whole tree.
func accept(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFREG:
		return nil
	case unix.S_IFCHR:
		if unix.Major(st.Rdev) == 1 { // null, zero, full, random, urandom
			return nil
		}
	}
	return errors.New("only pipes, sockets, regular files and terminals can be passed into a view")
}

// environment is the caller's with the view's name in it.
func (s *server) environment(env []string) []string {
	out := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, "NETSANDBOX_ENV=") {
			out = append(out, e)
		}
	}
	return append(out, "NETSANDBOX_ENV="+s.name)
}

// clamp brings the caller's limits down to what PID 1 can give: raising one
// takes a capability over the initial user namespace.
func (s *server) clamp(want []wire.Limit) []unix.Rlimit {
	n := min(len(want), len(s.limits))
	out := make([]unix.Rlimit, n)
	for r := range out {
		hard := min(want[r].Max, s.limits[r].Max)
		out[r] = unix.Rlimit{Cur: min(want[r].Cur, hard), Max: hard}
	}
	return out
}

// lookup returns the paths to try for a command name, as execvp(3) would. They
// are tried by the child: only the kernel knows what the caller may execute.
func lookup(name string, env []string) []string {
	if name == "" || strings.Contains(name, "/") {
		return []string{name}
	}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	var out []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		out = append(out, dir+"/"+name)
	}
	return out
}
