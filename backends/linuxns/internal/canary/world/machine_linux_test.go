package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// order is one line to a machine, answer the one that comes back.
type order struct {
	ID    int
	Where backends.Where
	Probe backends.Probe
}

type answer struct {
	ID      int
	Outcome backends.Outcome
	Err     string
}

// setup is what a machine is started with.
type setup struct {
	State   string // state root, on a filesystem that can hold uppers
	Mode    string
	Staged  map[string]string // files to write through the view
	Deleted []string
	Listen  []string // TCP listeners of the view, "127.0.0.1:80"
}

// becomeMachine makes an environment and runs what it is ordered to, in
// parallel, until its standard input ends.
func becomeMachine() error {
	// Or a goroutine that throws its thread's namespaces away could get the main
	// thread, whose namespaces /proc/PID/ns shows.
	runtime.LockOSThread()
	var s setup
	if err := json.Unmarshal([]byte(os.Args[1]), &s); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up", "tuntap add dev eth0 mode tap", "addr add 192.0.2.7/24 dev eth0",
		"link set eth0 up", "route add default via 192.0.2.1",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	e, end, err := s.environment()
	if err != nil {
		return err
	}
	// An abstract socket of the machine's network, which no world may reach.
	l, err := net.Listen("unix", "@"+filepath.Base(s.State))
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Println("ready")
	var wg sync.WaitGroup
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		wg.Go(func() {
			a := answer{ID: o.ID}
			var err error
			if a.Outcome, err = e.Run(context.Background(), o.Where, o.Probe); err != nil {
				a.Err = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			out.Encode(a)
		})
	}
	wg.Wait()
	return end()
}

func (s setup) environment() (e Env, shutdown func() error, err error) {
	mode, err := harden.Lookup(s.Mode)
	if err != nil {
		return e, nil, err
	}
	exe, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return e, nil, err
	}
	dir := envdir.Dir(filepath.Join(s.State, "env"))
	for _, d := range []string{"", envdir.Build, envdir.Layers, envdir.Files} {
		if err := os.Mkdir(dir.Path(d), 0o700); err != nil {
			return e, nil, err
		}
	}
	user, sibling := -1, -1
	var twin int
	if mode.UserNS() {
		if user, twin, err = rawfork.Namespaces(mode.Shift, harden.Ids, true); err != nil {
			return e, nil, err
		}
		if sibling, _, err = rawfork.Namespaces(mode.Shift, harden.Ids, false); err != nil {
			return e, nil, err
		}
	} else if twin, err = freshNet(); err != nil {
		return e, nil, err
	}
	mirror, err := nettwin.Mirror(context.Background(), twin, nettwin.Options{})
	if err != nil {
		return e, nil, err
	}
	c, theirs, err := wire.Pair()
	if err != nil {
		return e, nil, err
	}
	if err := c.Send(wire.Boot{Mode: mode.Name}, nil); err != nil {
		return e, nil, err
	}
	v, err := builder.Build(context.Background(), builder.Request{
		Dir: dir, StateRoot: s.State, Mode: mode, User: user, Net: twin,
		Cgroup: -1, Exe: exe, Socket: theirs, Run: -1,
	})
	if err != nil {
		return e, nil, err
	}
	unix.Close(theirs)
	if err := s.furnish(v, mode, twin); err != nil {
		return e, nil, err
	}
	e = Env{Dir: dir, StateRoot: s.State, Mode: mode, User: sibling, Net: twin, Merged: v.MountNS, Exe: exe, Networks: new(Networks)}
	return e, func() error { return errors.Join(c.Close(), end(v), mirror.Close()) }, nil
}

// furnish stages files and starts listeners in the view.
func (s setup) furnish(v *builder.View, mode harden.Mode, twin int) error {
	err := builder.In(v.MountNS, func() error {
		return mounts.As(mode.Shift, func() error {
			var errs []error
			for path, content := range s.Staged {
				errs = append(errs, os.WriteFile(path, []byte(content), 0o644))
			}
			for _, path := range s.Deleted {
				errs = append(errs, os.Remove(path))
			}
			return errors.Join(errs...)
		})
	})
	if err != nil {
		return err
	}
	for _, addr := range s.Listen {
		err := inNet(twin, func() error {
			l, err := net.Listen("tcp", addr)
			listeners = append(listeners, l)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listeners live as long as the machine.
var listeners []net.Listener

func inNet(ns int, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(ns, unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// machine is the test's side.
type machine struct {
	setup
	t    *testing.T
	cmd  *exec.Cmd
	in   *json.Encoder
	mu   sync.Mutex
	next int
	wait map[int]chan answer
}

// start boots a machine; it is shut down, and its upper looked at, at the end
// of the test.
func start(t *testing.T, s setup) *machine {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.Overlay, nstest.NetNS, nstest.TUN, nstest.UserNS, nstest.IDMap, nstest.Tool("ip"))
	s.State = t.TempDir()
	if s.Mode == "" {
		s.Mode = harden.Shifted
	}
	arg, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{setup: s, t: t, wait: map[int]chan answer{}}
	m.cmd = exec.Command("/proc/self/exe", string(arg))
	m.cmd.Args[0] = machineArgv0
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := m.cmd.Wait(); err != nil {
			t.Errorf("machine: %v", err)
		}
	})
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(stdout, line); err != nil {
		t.Fatalf("boot machine: %v", err)
	}
	m.in = json.NewEncoder(stdin)
	go m.receive(json.NewDecoder(stdout))
	return m
}

func (m *machine) receive(out *json.Decoder) {
	for {
		var a answer
		err := out.Decode(&a)
		m.mu.Lock()
		if err != nil {
			for _, c := range m.wait {
				close(c)
			}
			m.mu.Unlock()
			return
		}
		m.wait[a.ID] <- a
		delete(m.wait, a.ID)
		m.mu.Unlock()
	}
}

// run runs one probe and fails the test when it could not be run.
func (m *machine) run(where backends.Where, p backends.Probe) backends.Outcome {
	m.t.Helper()
	c := make(chan answer, 1)
	m.mu.Lock()
	m.next++
	o := order{m.next, where, p}
	m.wait[o.ID] = c
	err := m.in.Encode(o)
	m.mu.Unlock()
	if err != nil {
		m.t.Errorf("order: %v", err)
		return backends.Outcome{Exit: -1}
	}
	a, ok := <-c
	if !ok || a.Err != "" {
		m.t.Errorf("run in %s: %s", where, a.Err)
	}
	return a.Outcome
}

// processes are those whose command line holds the text.
func processes(t *testing.T, text string) []string {
	t.Helper()
	var found []string
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if b, _ := os.ReadFile(line); strings.Contains(string(b), text) {
			found = append(found, line)
		}
	}
	return found
}
