package cgroup

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func itoa(n int) string { return strconv.Itoa(n) }

func newID() string {
	b := make([]byte, 8)
	rand.Read(b)
	return "test" + hex.EncodeToString(b)
}

// sleeper is a process of the test's own.
func sleeper(t *testing.T) *os.Process {
	t.Helper()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return c.Process
}

func TestGroup(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	g, err := Open(newID())
	if err != nil || !g.Unified() {
		t.Fatalf("unified %v, %v", g.Unified(), err)
	}
	t.Cleanup(func() {
		if err := g.Remove(""); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(g.path()); !os.IsNotExist(err) {
			t.Errorf("the group is still there: %v", err)
		}
	})
	fd, err := g.View("view", 1<<31)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	var st unix.Stat_t
	for f, owner := range map[string]uint32{"": 1 << 31, "cgroup.procs": 1 << 31, "cgroup.freeze": 0} {
		if err := unix.Stat(g.path("view", f), &st); err != nil || st.Uid != owner {
			t.Errorf("%q belongs to %d, want %d (%v)", f, st.Uid, owner, err)
		}
	}
	p := sleeper(t)
	if g.Populated("view") {
		t.Error("populated before anything is in it")
	}
	below := g.path("view", "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(itoa(p.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if ps, err := g.Processes("view"); err != nil || len(ps) != 1 || ps[0] != p.Pid || !g.Populated("view") {
		t.Errorf("processes %v, %v", ps, err)
	}
	if err := g.Freeze("view", true, 5*time.Second); err != nil || !g.Frozen("view") {
		t.Errorf("freeze: %v", err)
	}
	if err := g.Kill("view", 5*time.Second); err != nil { // also what is frozen
		t.Error(err)
	}
	if ps, err := g.Processes("view"); err != nil || len(ps) != 0 {
		t.Errorf("after kill: %v, %v", ps, err)
	}
	if err := g.Kill("never made", time.Second); err != nil {
		t.Error(err)
	}
}

// A machine with cgroup v1 alone.
func TestFreezerOfVersion1(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	dir := t.TempDir()
	if err := unix.Mount("freezer", dir, "cgroup", 0, "freezer"); err != nil {
		t.Skipf("this kernel has no freezer of cgroup v1: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	g := &Group{id: newID(), v1: map[string]string{"freezer": dir}}
	t.Cleanup(func() {
		if err := g.Remove(""); err != nil {
			t.Error(err)
		}
	})
	p := sleeper(t)
	if err := g.Place(p.Pid); err != nil {
		t.Fatal(err)
	}
	if err := g.Freeze("view", true, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, Tag, g.id, "view", "freezer.state")
	if b, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(b)) != "FROZEN" {
		t.Errorf("state %q, %v", b, err)
	}
	if err := g.Freeze("view", false, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(b)) != "THAWED" {
		t.Errorf("state %q, %v", b, err)
	}
	p.Kill()
	p.Wait()
}
