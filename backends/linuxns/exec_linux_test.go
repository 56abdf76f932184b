package linuxns

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
)

func TestExecStatus(t *testing.T) {
	e := newEnv(t)
	script := filepath.Join(t.TempDir(), "script") // below the host's /tmp, which the view shows
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		r    backends.ExecRequest
		want int
		says string // regular expression
	}{
		{"success", request("true"), 0, `^$`},
		{"exit status passes through", request("sh", "-c", "exit 7"), 7, `^$`},
		{"killed by itself", request("sh", "-c", "kill -TERM $$"), 143, `^$`},
		{"killed hard inside", request("sh", "-c", "kill -KILL $$"), 137, `^$`},
		{"command not found", request("no-such-command"), 127, `^"no-such-command": command not found$`},
		{"path not found", request("/no/such/path"), 127, `^"/no/such/path": no such file or directory$`},
		{"not executable", request(script), 126, `: cannot execute: permission denied$`},
		{"a directory is not executable", request("/etc"), 126, `: cannot execute: permission denied$`},
		{"no interpreter line, no shell in between", request("/etc/passwd"), 126, `: cannot execute: `},
		{
			"working directory missing in the view",
			backends.ExecRequest{Argv: []string{"true"}, Cwd: "/no/such"},
			125,
			`^working directory "/no/such" does not exist in the view$`,
		},
		{
			"working directory is a file",
			backends.ExecRequest{Argv: []string{"true"}, Cwd: "/etc/passwd"},
			125,
			`does not exist in the view$`,
		},
		{"an empty environment", backends.ExecRequest{Argv: []string{"/usr/bin/env"}, Cwd: "/"}, 0, `^NETSANDBOX_ENV=test\n$`},
		{"bytes that are no text", request("printf", "%s", "a\xff\xfeb"), 0, "^a\xff\xfeb$"},
		{"a command line as long as the kernel takes", request("sh", "-c", "echo $#", "sh", strings.Repeat("x", 120<<10)), 0, `^1\n$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &env{t: t, b: e.b, spec: e.spec}
			status, out := e.exec(tc.r)
			if status != tc.want {
				t.Errorf("status %d, want %d (%s)", status, tc.want, out)
			}
			if ok := strings.Contains(tc.says, "\xff") && out == "a\xff\xfeb"; !ok && !regexp.MustCompile(strings.ToValidUTF8(tc.says, "")).MatchString(out) {
				t.Errorf("said %q, want %s", out, tc.says)
			}
		})
	}
}

func TestExecSurroundings(t *testing.T) {
	e := newEnv(t)
	t.Run("directory, mask and limits are the caller's", func(t *testing.T) {
		var files unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			t.Fatal(err)
		}
		r := request("sh", "-c", "pwd; umask; ulimit -n; ulimit -Hn")
		r.Cwd = "/usr/share"
		_, out := e.exec(r)
		want := fmt.Sprintf("/usr/share\n%04o\n%d\n%d\n", mask(t), files.Cur, files.Max)
		if out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	})
	t.Run("sockets of the host's session are left out", func(t *testing.T) {
		r := request("/usr/bin/env")
		r.Env = []string{"SSH_AUTH_SOCK=/x", "DBUS_SESSION_BUS_ADDRESS=y", "KEEP=1", "NETSANDBOX_ENV=forged"}
		_, out := e.exec(r)
		if want := "KEEP=1\nNETSANDBOX_ENV=test\n"; out != want {
			t.Errorf("got %q, want %q", out, want)
		}
	})
	t.Run("pipes can be opened again", func(t *testing.T) {
		status, out := e.sh("echo one > /dev/stdout; echo two > /dev/stderr; echo three > /proc/self/fd/1")
		if status != 0 || out != "one\ntwo\nthree\n" {
			t.Errorf("status %d, wrote %q", status, out)
		}
	})
	t.Run("input passes through", func(t *testing.T) {
		r := request("tr", "a-z", "A-Z")
		r.Stdin = strings.NewReader("hello\n")
		if _, out := e.exec(r); out != "HELLO\n" {
			t.Errorf("wrote %q", out)
		}
	})
	t.Run("a directory cannot be passed", func(t *testing.T) {
		d, err := os.Open("/etc")
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		r := request("ls", "/proc/self/fd/0/")
		r.Stdin = d
		status, out := e.exec(r)
		if status != 125 || !strings.Contains(out, "cannot be passed into a view") {
			t.Errorf("status %d: %s", status, out)
		}
	})
	t.Run("closed descriptors are the null device", func(t *testing.T) {
		c := e.clientCmd()
		c.Path = "/bin/bash"
		c.Args = []string{"bash", "-c", `exec -a "$0" "$1" sh -c 'readlink /proc/self/fd/0 >&2; cat' <&- >&-`, clientArgv0, self(t)}
		var out bytes.Buffer
		c.Stderr = &out
		if err := c.Run(); err != nil || out.String() != "/dev/null\n" {
			t.Errorf("%v, %q", err, out.String())
		}
	})
	t.Run("a caller that ignores its children", func(t *testing.T) {
		c := e.clientCmd()
		c.Path = "/bin/bash"
		c.Args = []string{"bash", "-c", `trap '' CHLD; exec -a "$0" "$1" sh -c 'true & wait; exit 6'`, clientArgv0, self(t)}
		if c.Run(); c.ProcessState.ExitCode() != 6 {
			t.Errorf("ended with %v", c.ProcessState)
		}
	})
	t.Run("a crash starts nothing on the host", func(t *testing.T) {
		pattern := read(t, "/proc/sys/kernel/core_pattern")
		var l unix.Rlimit
		if err := unix.Prlimit(e.live(), unix.RLIMIT_CORE, nil, &l); err != nil {
			t.Fatal(err)
		}
		if piped := strings.HasPrefix(pattern, "|"); piped != (l.Max == 1) {
			t.Errorf("core limit %d with core pattern %q", l.Max, pattern)
		}
	})
	t.Run("signals start at their defaults", func(t *testing.T) {
		out := e.must("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
		if strings.Trim(regexp.MustCompile(`[A-Za-z:\s]`).ReplaceAllString(out, ""), "0") != "" {
			t.Errorf("signal dispositions:\n%s", out)
		}
	})
}

// self is the path of this program.
func self(t *testing.T) string {
	t.Helper()
	p, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mask(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m, err := strconv.ParseInt(strings.TrimSpace(regexp.MustCompile(`Umask:\s*(\d+)`).FindStringSubmatch(string(b))[1]), 8, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int(m)
}

// Each signal test starts a client of its own, because the signals go to a process.
func TestExecSignals(t *testing.T) {
	e := newEnv(t)
	t.Run("a signal goes to the command", func(t *testing.T) {
		c, out := e.client(t, "sh", "-c", "trap 'echo got; exit 9' TERM; echo ready; while :; do sleep 0.01; done")
		line(t, out, "ready")
		c.Process.Signal(syscall.SIGTERM)
		line(t, out, "got")
		if err := c.Wait(); err == nil || c.ProcessState.ExitCode() != 9 {
			t.Errorf("ended with %v", err)
		}
	})
	t.Run("a command that dies of it", func(t *testing.T) {
		c, out := e.client(t, "sh", "-c", "echo ready; exec sleep 1000")
		line(t, out, "ready")
		c.Process.Signal(syscall.SIGTERM)
		if c.Wait(); c.ProcessState.ExitCode() != 143 {
			t.Errorf("ended with %v", c.ProcessState)
		}
	})
	t.Run("a killed client takes its command along, not its daemons", func(t *testing.T) {
		c, out := e.client(t, "sh", "-c", "trap '' HUP; setsid sh -c 'echo ready; exec sleep 4321' & while :; do sleep 0.01; done")
		line(t, out, "ready")
		c.Process.Kill()
		c.Wait()
		until(t, "the command is gone and its daemon lives", func() bool {
			var names []string
			for _, p := range e.status().Processes {
				names = append(names, p.Comm)
			}
			return len(names) == 1 && names[0] == "sleep"
		})
	})
}

func TestDaemonsLiveOn(t *testing.T) {
	e := newEnv(t)
	e.must("sh", "-c", "sleep 1234 >/dev/null 2>&1 & echo $! > /run/pid")
	init := e.status().Init
	e.must("sh", "-c", "kill -0 $(cat /run/pid)")
	if now := e.status().Init; now != init {
		t.Errorf("the view was built again (%d, then %d) over a living daemon", init, now)
	}
	e.must("sh", "-c", "kill $(cat /run/pid)")
	until(t, "the daemon is reaped", func() bool {
		for _, p := range e.status().Processes {
			if p.Comm == "sleep" {
				return false
			}
		}
		return true
	})
	if zombies := e.must("sh", "-c", "grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null; true"); zombies != "" {
		t.Errorf("zombies: %s", zombies)
	}
}

func TestDetach(t *testing.T) {
	e := newEnv(t)
	started := time.Now()
	e.detach("sleep", "1000")
	if took := time.Since(started); took > 30*time.Second {
		t.Errorf("waited %v for a detached command", took)
	}
	ps := e.status().Processes
	if len(ps) != 1 || ps[0].Comm != "sleep" {
		t.Errorf("processes: %+v", ps)
	}
}

func TestExecOfAnEndedContext(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		until(t, "the command runs", func() bool { return len(e.status().Processes) > 0 })
		cancel()
	}()
	status, err := e.b.Exec(ctx, e.spec, request("sleep", "1000"))
	if status != 125 || err == nil {
		t.Errorf("status %d, error %v", status, err)
	}
	until(t, "the command is hung up", func() bool { return len(e.status().Processes) == 0 })
}

// client runs a command through a client process of its own.
func (e *env) client(t *testing.T, argv ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := e.clientCmd(argv...)
	c.Stdout = w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		c.Process.Kill()
		r.Close()
	})
	return c, r
}

// line waits for a line of output.
func line(t *testing.T, f *os.File, want string) {
	t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for b := make([]byte, 1); ; {
		if _, err := f.Read(b); err != nil {
			t.Fatalf("waiting for %q: %v (read %q)", want, err, got)
		}
		if b[0] == '\n' {
			break
		}
		got = append(got, b[0])
	}
	if strings.TrimSuffix(string(got), "\r") != want {
		t.Fatalf("read %q, want %q", got, want)
	}
}
