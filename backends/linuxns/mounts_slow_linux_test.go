package linuxns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
)

// within fails when f takes longer.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	started := time.Now()
	f()
	if took := time.Since(started); took > limit {
		t.Errorf("%s took %v", what, took)
	}
}

// A server that takes requests and answers none makes whoever asks it hang in
// the kernel, also when it is killed. Nothing may ask it but what can be left
// behind.
func TestServerThatNeverAnswers(t *testing.T) {
	m := newMounted(t)
	m.serve("dead", fuse.MountOptions{AllowOther: true}).hang(t)
	m.mount("x", "tmpfs", 0, "", "alive")
	var e *env
	within(t, 20*time.Second, "create", func() { e = newEnv(t) })
	m.treated(e, "dead", "excluded", "fuse.test did not answer within 5s")
	within(t, 3*time.Second, "exec", func() {
		m.says(e, "what is not shown is not empty", "ls dead 2>/dev/null || echo refused; echo x > alive/f; cat alive/f", "refused\nx\n")
	})
	within(t, 3*time.Second, "the next exec", func() { e.must("true") })
	within(t, 3*time.Second, "changes", func() { m.certain(e, "alive/f") })
	within(t, 5*time.Second, "a canary", func() {
		if o := e.canary(backends.InCandidate, shell("cat "+m.path("alive/f"))); o.Output != `x\x0a` {
			t.Errorf("candidate: %+v", o)
		}
	})
	within(t, 20*time.Second, "a canary on the host", func() {
		if o := e.canary(backends.InJail, shell("ls "+m.path("dead"))); o.OK() {
			t.Errorf("jail: %+v", o)
		}
	})
	within(t, 20*time.Second, "doctor", func() {
		found := false
		for _, f := range probe(t, e.spec.StateRoot) {
			if f.Name == "idmap "+m.path("dead") {
				found = f.Status == "degraded" && strings.Contains(f.Detail, "was not asked")
			}
			if strings.Contains(f.Detail, builder.LayerArgv0) {
				t.Errorf("taken for left over: %+v", f)
			}
		}
		if !found {
			t.Error("doctor does not name it")
		}
	})
	within(t, 10*time.Second, "discard", func() {
		if err := e.view().Discard(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if e.status().Holder != 0 || exists(e.spec.Dir) {
		t.Error("the environment is still there")
	}
	left := func(f backends.Finding) bool {
		return f.Status == "leftover" && strings.Contains(f.Detail, builder.LayerArgv0) && strings.Contains(f.Fix, "umount -f")
	}
	if found := probe(t, e.spec.StateRoot); !slices.ContainsFunc(found, left) {
		t.Errorf("doctor names no process that hangs: %+v", found)
	}
}

// A server that dies later takes what is mounted below it along, and nothing else.
func TestServerThatDiesLater(t *testing.T) {
	m := newMounted(t)
	s := m.serve("net", fuse.MountOptions{AllowOther: true})
	m.mount("x", "tmpfs", 0, "", "net/dir")
	m.mount("y", "tmpfs", 0, "", "other")
	e := newEnv(t)
	m.says(e, "while it lives", "echo x > net/dir/f; echo y > other/f; cat net/f", "host\n")
	s.hang(t)
	within(t, 15*time.Second, "exec", func() {
		m.says(e, "the rest goes on", "cat other/f; cat net/f net/dir/f 2>/dev/null || echo refused", "y\nrefused\n")
	})
	within(t, 10*time.Second, "changes", func() {
		b := m.blocked(e, "mount-changed", "net/dir")
		if b.Reason != "its fuse.test filesystem: does not answer" {
			t.Errorf("reason %q", b.Reason)
		}
	})
	within(t, 10*time.Second, "discard", func() {
		if err := e.view().Discard(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A filesystem that only its owner may look at is none that root can show.
func TestServerForItsOwnerOnly(t *testing.T) {
	m := newMounted(t)
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m.mount("own", "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=1000,group_id=1000", dev.Fd()), "own")
	var e *env
	within(t, 20*time.Second, "create", func() { e = newEnv(t) })
	m.treated(e, "own", "excluded", "ermission denied")
}

// An automounter is not woken: not by create, not by a command, not by a plan.
func TestAutomountIsNotTriggered(t *testing.T) {
	m := newMounted(t)
	net, efi := m.automount("net", "indirect"), m.automount("efi", "direct")
	home := m.path("net/home")
	net.do("mkdir " + home + "; mount -t tmpfs x " + home + "; echo host > " + home + "/f; mkdir " + home + "/inner; mount -t tmpfs x " + home + "/inner")
	var e *env
	within(t, 20*time.Second, "create", func() { e = newEnv(t) })
	m.treated(e, "net", "excluded", "it mounts on demand")
	m.treated(e, "efi", "excluded", "it mounts on demand")
	m.treated(e, "net/home", "layer", "")
	for range 2 {
		m.says(e, "what is mounted is there", "ls net; cat net/home/f; ls net/other 2>/dev/null || echo none", "home\nhost\nnone\n")
		m.says(e, "what is not is not empty", "ls efi 2>/dev/null || echo refused; echo x 2>/dev/null > net/f || echo refused", "refused\nrefused\n")
	}
	m.says(e, "written", "echo x > net/home/f; echo y > net/home/inner/f", "")
	m.certain(e, "net/home/f", "net/home/inner/f")
	named := func(f backends.Finding) bool { return f.Name == "mount "+m.path("efi") && f.Status == "degraded" }
	if found := probe(t, e.spec.StateRoot); !slices.ContainsFunc(found, named) {
		t.Errorf("doctor does not name it: %+v", found)
	}
	// Now the automounter waits where a layer was.
	net.do("umount " + home + "/inner; umount " + home)
	within(t, 5*time.Second, "changes", func() { m.blocked(e, "mount-changed", "net/home") })
	net.quiet()
	efi.quiet()
}

// automounter is an automount point whose daemon mounts nothing.
type automounter struct {
	t     *testing.T
	asked *os.File // what the kernel asks of the daemon
	in    io.Writer
	out   *bufio.Reader
}

func (m mounted) automount(at, kind string) *automounter {
	m.t.Helper()
	m.mkdir(at)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_DIRECT|unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		m.t.Fatal(err)
	}
	asked, kernel := os.NewFile(uintptr(p[0]), "requests"), os.NewFile(uintptr(p[1]), "kernel")
	// A process of the daemon's group is the only one that does not wake it.
	daemon := exec.Command("sh")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := daemon.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := daemon.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		unix.Unmount(m.path(at), unix.MNT_DETACH)
		asked.Close()
		kernel.Close()
		in.Close()
		_ = daemon.Wait()
	})
	options := fmt.Sprintf("fd=%d,pgrp=%d,minproto=5,maxproto=5,%s", kernel.Fd(), daemon.Process.Pid, kind)
	if err := unix.Mount("test", m.path(at), "autofs", 0, options); err != nil {
		m.t.Fatal(err)
	}
	return &automounter{m.t, asked, in, bufio.NewReader(out)}
}

// do runs a script as the daemon.
func (a *automounter) do(script string) {
	a.t.Helper()
	if _, err := fmt.Fprintln(a.in, "{ "+script+"; } 2>&1 && echo done || echo failed"); err != nil {
		a.t.Fatal(err)
	}
	if said, err := a.out.ReadString('\n'); said != "done\n" {
		a.t.Fatalf("%s: %q, %v", script, said, err)
	}
}

// quiet fails when the daemon was asked for anything.
func (a *automounter) quiet() {
	a.t.Helper()
	var buf [512]byte
	if n, err := unix.Read(int(a.asked.Fd()), buf[:]); n > 0 || err != unix.EAGAIN {
		a.t.Errorf("it was asked to mount: % x, %v", buf[:max(n, 0)], err)
	}
}
