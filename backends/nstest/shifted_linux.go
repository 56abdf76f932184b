package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Shift is the kernel's id of user 0 in a namespace of [Shifted].
const Shift = 1 << 31

// Shifted starts a process that does nothing in a user namespace whose ids are
// shifted, and returns the network namespace that it owns, and its number. All of
// it ends with the test.
func Shifted(t testing.TB) (ns *os.File, pid int) {
	t.Helper()
	Require(t, Root, NetNS, UserNS, Tool("sleep"))
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: Shift, Size: 1<<31 - 1}}
	cmd := exec.Command("sleep", "infinity")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns, cmd.Process.Pid
}
