package linuxns

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
)

const (
	hostileRole   = "NETSANDBOX_TEST_HOSTILE"
	hostileSocket = "/run/hostile.sock"
)

// attack is what a hostile root of the view got out of a canary that connected
// to it.
type attack struct {
	Peer     string // whether the kernel handed it a descriptor of the process
	Taken    []int  // descriptors taken with pidfd_getfd(2)
	Refusals map[string]int
	Signal   string
	Entered  []string // namespaces entered
}

// TestHostileRoot runs inside the view, and again in the canary, as the program
// that its role names.
func TestHostileRoot(t *testing.T) {
	var err error
	switch os.Getenv(hostileRole) {
	case "server":
		err = hostileServer()
	case "client":
		err = hostileClient()
	default:
		hostileTest(t)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// In the view's own user namespace this attack takes every descriptor, those
// of the answer included. A sibling namespace is what refuses it.
func hostileTest(t *testing.T) {
	for _, uid := range []uint32{0, 1000} {
		t.Run("canary of uid "+strconv.Itoa(int(uid)), func(t *testing.T) {
			a := attacked(t, func(e *env, p backends.Probe) error {
				p.UID, p.GID = uid, uid
				if got := e.canary(backends.InCandidate, p); !got.OK() {
					return fmt.Errorf("the attacked canary: %+v", got)
				}
				return nil
			})
			if len(a.Taken) > 0 || len(a.Entered) > 0 || a.Signal == "sent" {
				t.Errorf("hostile root succeeded: %+v", a)
			}
			if a.Refusals["EPERM"] == 0 {
				t.Errorf("pidfd_getfd was refused for another reason than power: %+v", a)
			}
		})
	}
	t.Run("command of the view", func(t *testing.T) {
		a := attacked(t, func(e *env, p backends.Probe) error {
			_, err := e.b.Exec(t.Context(), e.spec, backends.ExecRequest{Argv: p.Argv, Env: p.Env, Cwd: "/", Stderr: os.Stderr})
			return err
		})
		if len(a.Taken) == 0 {
			t.Errorf("the attack takes nothing where it should, so it shows nothing elsewhere: %+v", a)
		}
	})
}

// attacked starts the hostile server in a view, lets victim connect the client
// to it, and returns what the server got.
func attacked(t *testing.T, victim func(*env, backends.Probe) error) attack {
	t.Helper()
	// Before the view is built: a candidate that is already running keeps the
	// command from getting a fresh one, and an old one still has the old modes.
	program := forAnybody(t)
	e := newEnv(t)
	p := shell("")
	p.Argv = []string{program, "-test.run=^TestHostileRoot$"}
	role := func(name string) []string { return append(os.Environ(), hostileRole+"="+name) }
	report := make(chan []byte, 1)
	go func() {
		var out bytes.Buffer
		_, err := e.b.Exec(t.Context(), e.spec, backends.ExecRequest{
			Argv: p.Argv, Cwd: "/", Env: role("server"), Stdout: &out, Stderr: os.Stderr,
		})
		if err != nil {
			t.Error(err)
		}
		report <- out.Bytes()
	}()
	until(t, "the hostile server listens", func() bool {
		return e.canary(backends.InCandidate, shell("test -S "+hostileSocket)).OK()
	})
	p.Env = role("client")
	if err := victim(e, p); err != nil {
		t.Error(err)
	}
	said := <-report
	var a attack
	if err := json.NewDecoder(bytes.NewReader(said)).Decode(&a); err != nil {
		t.Fatalf("the hostile server said %q: %v", said, err)
	}
	if a.Peer != "got a pidfd" {
		t.Fatalf("the attack did not begin: %+v", a)
	}
	return a
}

// forAnybody is this program where every uid can run it.
func forAnybody(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.Link(self, program); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return program
}

func hostileServer() error {
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Under its name only when it listens.
	const begun = hostileSocket + ".new"
	err = unix.Bind(l, &unix.SockaddrUnix{Name: begun})
	if err == nil {
		err = unix.Chmod(begun, 0o777)
	}
	if err == nil {
		err = unix.Listen(l, 1)
	}
	if err == nil {
		err = unix.Rename(begun, hostileSocket)
	}
	if err != nil {
		return err
	}
	limit := unix.NsecToTimeval((20 * time.Second).Nanoseconds())
	if err := unix.SetsockoptTimeval(l, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	c, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
	if err != nil {
		return fmt.Errorf("nobody connected: %w", err)
	}
	a := attack{Refusals: map[string]int{}}
	const peerPidfd = 77 // SO_PEERPIDFD, Linux 6.5
	pid, err := unix.GetsockoptInt(c, unix.SOL_SOCKET, peerPidfd)
	if err != nil {
		a.Peer = err.Error()
		return json.NewEncoder(os.Stdout).Encode(a)
	}
	a.Peer = "got a pidfd"
	for fd := range 16 {
		got, err := unix.PidfdGetfd(pid, fd, 0)
		var errno unix.Errno
		if errors.As(err, &errno) {
			a.Refusals[unix.ErrnoName(errno)]++
			continue
		}
		a.Taken = append(a.Taken, fd)
		unix.Close(got)
	}
	for name, flag := range map[string]int{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC,
	} {
		if unix.Setns(pid, flag) == nil {
			a.Entered = append(a.Entered, name)
		}
	}
	a.Signal = "sent"
	if err := unix.PidfdSendSignal(pid, unix.SIGKILL, nil, 0); err != nil {
		a.Signal = err.Error()
	}
	unix.Write(c, []byte("done")) // a client that was killed does not wait for it
	return json.NewEncoder(os.Stdout).Encode(a)
}

// hostileClient is the canary: it stays connected until the attack is over.
func hostileClient() error {
	c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(c, &unix.SockaddrUnix{Name: hostileSocket}); err != nil {
		return err
	}
	_, err = unix.Read(c, make([]byte, 8))
	return err
}
