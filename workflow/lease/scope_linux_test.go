package lease

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestKeeperHasACgroupOfItsOwn(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	roots, err := cgroupRoots()
	if err != nil || len(roots) == 0 {
		t.Fatalf("roots %v: %v", roots, err)
	}
	tr := begin(t, "patient")
	name := fmt.Sprintf("/%s%d", scopePrefix, tr.keeper)
	for _, r := range roots {
		b, err := os.ReadFile(filepath.Join(r.dir, name, "cgroup.procs"))
		if err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(tr.keeper) {
			t.Errorf("%s%s holds %q (%v), want the keeper alone", r.dir, name, b, err)
		}
	}
	tr.order("commit")
	<-tr.ended
	eventually(t, "the keeper ends", func() bool { return !alive(tr.keeper) })
	for _, r := range roots {
		if _, err := os.Stat(filepath.Join(r.dir, name)); err == nil {
			t.Errorf("%s%s is left behind", r.dir, name)
		}
	}
}

func TestKeeperLeavesNoCgroupAfterAnUndo(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	tr := begin(t, "patient")
	if err := tr.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	tr.undone(ApplierDied)
	roots, err := cgroupRoots()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range roots {
		if _, err := os.Stat(filepath.Join(r.dir, fmt.Sprintf("%s%d", scopePrefix, tr.keeper))); err == nil {
			t.Errorf("a cgroup is left in %s", r.dir)
		}
	}
}

func TestKilledKeeperLeavesWhatSweepRemoves(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	tr := begin(t, "patient")
	// Stopped, the applier cannot sweep by itself.
	tr.signal(tr.applier, unix.SIGSTOP)
	tr.signal(tr.keeper, unix.SIGKILL)
	name := fmt.Sprintf("%s%d", scopePrefix, tr.keeper)
	left := func() (n int) {
		for _, dir := range Leftovers() {
			if filepath.Base(dir) == name {
				n++
			}
		}
		return n
	}
	eventually(t, "the cgroups are empty", func() bool { return left() > 0 })
	eventually(t, "they are swept", func() bool { Sweep(); return left() == 0 })
}
