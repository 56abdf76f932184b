package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
)

// Whoever undoes has the transaction's file and nothing else, and that on a disk
// that takes no more writes. The host does not wait for the disk.
func TestUndoneWithTheStateDiskGone(t *testing.T) {
	w := newFaultWorld(t, faultfs.Ext4)
	for _, f := range diskFaults {
		for _, by := range []string{"keeper", "recover"} {
			w.alone(f, by)
		}
	}
}

// alone lets the applier die in the middle of its renames, and for recover the
// keeper with it.
func (w *faultWorld) alone(f diskFault, by string) {
	w.t.Helper()
	w.fresh()
	mend := nothing
	strike := func() bool {
		if by == "recover" {
			for _, pid := range w.keepers() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		mend = f.strike(w.t, w.disk)
		return false
	}
	w.struck(amid("swap", "middle"), strike, "apply", w.name, "--yes")
	w.unwatched()
	var said error
	if by == "recover" {
		_, said = w.run("recover")
	}
	if diff := cmp.Diff(w.before, w.tree()); diff != "" {
		w.t.Errorf("%s of the state, by the %s: the host waits for the disk (-before +now): %v\n%s", f.name, by, said, diff)
	}
	w.reboot()
	mend()
	if last := w.settled(); last.Status != "undone" {
		w.t.Errorf("%s of the state, by the %s: the transaction is %s", f.name, by, last.Status)
	}
	if diff := cmp.Diff(w.before, w.tree()); diff != "" {
		w.t.Errorf("%s of the state, by the %s: recovered, host (-before +now):\n%s", f.name, by, diff)
	}
	w.must("discard", w.name, "--yes")
}
