package linuxns

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// kill ends the holder as nothing can prepare for, and waits until it is gone.
func (e *env) kill() {
	e.t.Helper()
	// Its lock is free before it has ended: the kernel closes files first.
	fd, err := unix.PidfdOpen(e.status().Holder, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		e.t.Fatal(err)
	}
	until(e.t, "the holder has ended", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		return n == 1 && err == nil
	})
}

func (e *env) group() string {
	e.t.Helper()
	root, err := cgroup2Mount()
	if err != nil {
		e.t.Fatal(err)
	}
	return filepath.Join(root, cgroup.Tag, e.spec.ID)
}

func TestTidyEndsWhatDeadHoldersLeft(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	dead, living := newEnv(t), newEnv(t)
	dead.live()
	alive := living.live()
	dead.kill()
	specs := []backends.Spec{dead.spec, living.spec, {Name: "nobody", Dir: filepath.Join(t.TempDir(), "nobody")}}
	gone, err := dead.b.Tidy(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	want := backends.Resource{Kind: "cgroup", Name: cgroup.Tag + "/" + dead.spec.ID}
	if !slices.Contains(gone, want) || len(gone) != 1 {
		t.Errorf("removed %+v, want %+v", gone, want)
	}
	if exists(dead.group()) || !exists(living.group()) {
		t.Errorf("groups: of the dead %v, of the living %v", exists(dead.group()), exists(living.group()))
	}
	if err := unix.Kill(alive, 0); err != nil {
		t.Errorf("the living view: %v", err)
	}
	if gone, err := dead.b.Tidy(t.Context(), specs); err != nil || len(gone) != 0 {
		t.Errorf("again: %+v, %v", gone, err)
	}
	dead.must("true") // and it goes on
	if s := dead.status(); !s.TwinLost {
		t.Errorf("the twin's loss is forgotten: %+v", s)
	}
}

// A holder that is being started is not yet there to hold its lock.
func TestTidyLeavesWhatIsBeingStarted(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	e := newEnv(t)
	e.kill()
	start, err := envdir.Dir(e.spec.Dir).Lock(envdir.StartLock, true)
	if err != nil {
		t.Fatal(err)
	}
	defer start.Close()
	if gone, err := e.b.Tidy(t.Context(), []backends.Spec{e.spec}); err != nil || len(gone) != 0 || !exists(e.group()) {
		t.Errorf("%+v, %v", gone, err)
	}
}

// A lock that was moved away, or is no file, says nothing about who lives.
func TestTidyBelievesNoLockAlone(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	e := newEnv(t)
	alive := e.live()
	lock := envdir.Dir(e.spec.Dir).Path(envdir.HolderLock)
	for name, put := range map[string]func() error{
		"none": func() error { return nil },
		"fifo": func() error { return unix.Mkfifo(lock, 0o600) },
		"file": func() error { return os.WriteFile(lock, nil, 0o600) },
	} {
		if err := os.Rename(lock, lock+".aside"); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if gone, _ := e.b.Tidy(t.Context(), []backends.Spec{e.spec}); len(gone) != 0 || unix.Kill(alive, 0) != nil {
			t.Errorf("%s: removed %+v of a living holder", name, gone)
		}
		if err := os.Rename(lock+".aside", lock); err != nil {
			t.Fatal(err)
		}
	}
}
