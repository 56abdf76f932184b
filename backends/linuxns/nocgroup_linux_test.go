package linuxns

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// Containers often have no cgroup hierarchy that could be written.
func TestWithoutCgroups(t *testing.T) {
	nstest.NewMount(t, nstest.Root, nstest.Overlay)
	if err := unix.Mount("none", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t)
	e.must("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & until test -e /proc/$!/comm && test $(cat /proc/$!/comm) = sleep; do :; done")
	s := e.status()
	if len(s.Processes) != 1 || s.Processes[0].Comm != "sleep" {
		t.Fatalf("processes %+v", s.Processes)
	}
	e.must("true")
	if now := e.status().Init; now != s.Init {
		t.Error("built again over a living process")
	}
	if _, err := e.view().Freeze(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("freeze: %v", err)
	}
	if err := e.view().Reset(t.Context(), backends.Reset{All: true}); !errors.Is(err, backends.ErrBusyView) || !strings.Contains(err.Error(), "sleep") {
		t.Errorf("reset: %v", err)
	}
	if err := syscall.Kill(s.Holder, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e.must("true")
	if err := syscall.Kill(s.Processes[0].PID, 0); err != syscall.ESRCH {
		t.Errorf("a process of the lost view: %v", err)
	}
}
