package lanes

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// The child is this test binary again, in the lab's host. It does everything that
// an owner of lanes does, and kills itself after a number of steps.
const (
	childStep   = "LANES_CHILD_STEP"
	childRecord = "LANES_CHILD_RECORD"
	childLink   = "LANES_CHILD_LINK"
)

func child() int {
	if err := life(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// life makes lanes of every kind, moves them out of the way of a new rule, drops
// one, and closes.
func life() error {
	last, err := strconv.Atoi(os.Getenv(childStep))
	link, err2 := strconv.Atoi(os.Getenv(childLink))
	host, err3 := os.Open("/proc/self/ns/net")
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	ls, err := Open(host, Options{Record: os.Getenv(childRecord), Owner: "child"})
	if err != nil {
		return err
	}
	step := 0
	ls.step = func() {
		if step++; step == last {
			_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	gateway := way.Lane{Index: link, NextHop: netip.MustParseAddr("198.51.100.1")}
	for _, w := range []way.Lane{
		gateway,
		{Index: link},
		{Index: link, NextHop: netip.MustParseAddr("fe80::1")},
		{Index: link, NextHop: netip.MustParseAddr("fe80::1"), Six: true},
	} {
		if _, err := ls.Lane(w); err != nil {
			return err
		}
	}
	f := flow(gateway, netip.MustParseAddrPort("198.51.100.2:4000"))
	if err := errors.Join(ls.Admit(f), ls.kernel.addRule(early), ls.Ensure(), ls.kernel.removeRule(early), ls.Ensure()); err != nil {
		return err
	}
	ls.Release(f)
	return errors.Join(ls.Admit(f), ls.unmake(ls.lanes[way.Lane{Index: link}]), ls.Close())
}

// early is somebody else's rule.
var early = rule{pref: 300, action: toTable, table: 77, protocol: unix.RTPROT_STATIC}

func (l *lab) child(t *testing.T, step int, record string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childStep+"="+strconv.Itoa(step), childRecord+"="+record, childLink+"="+strconv.Itoa(l.eth1))
	cmd.Stderr = os.Stderr
	must(t, l.host.Start(cmd))
	return cmd
}

// TestKilledAtAnyStep kills an owner after each of its steps. Whatever it had
// made was announced before, belongs to nobody, and goes with a sweep.
func TestKilledAtAnyStep(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	record := filepath.Join(t.TempDir(), "lanes")
	host := int(l.host.NS().Fd())
	most := 0
	for step := 1; ; step++ {
		err := l.child(t, step, record).Wait()
		if err == nil { // it lived to its end
			t.Logf("%d steps, %d objects at once", step-1, most)
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
			t.Fatalf("step %d: the child ended with %v, want a kill", step, err)
		}
		found, err := Find(host)
		must(t, err)
		announced(t, step, found, record)
		most = max(most, len(found))
		gone, err := Sweep(host)
		must(t, err)
		if len(gone) != len(found) {
			t.Errorf("step %d: swept %d objects of %d", step, len(gone), len(found))
		}
		if again, err := Sweep(host); err != nil || len(again) != 0 {
			t.Errorf("step %d: a second sweep removed %v (%v)", step, again, err)
		}
		_ = l.removeEarly()
		l.same(t, before)
		if t.Failed() {
			t.Fatalf("after step %d", step)
		}
	}
	if most < 13 { // four lanes of three objects, and an admission
		t.Errorf("%d objects at once, want 13 at least", most)
	}
	l.same(t, before)
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record outlived an owner that closed: %v", err)
	}
}

func (l *lab) removeEarly() error {
	k, err := dial(int(l.host.NS().Fd()))
	if err != nil {
		return err
	}
	return errors.Join(k.removeRule(early), k.Close())
}

// announced wants every object in the record's range, and nobody alive.
func announced(t *testing.T, step int, found []Object, record string) {
	t.Helper()
	if len(found) == 0 {
		return
	}
	b, err := os.ReadFile(record)
	must(t, err)
	var r struct {
		Owner, Boot string
		NetNS       uint64
		Block       int
		First, Last uint32
		Proto       int
	}
	must(t, json.Unmarshal(b, &r))
	if r.Owner != "child" || len(r.Boot) != 36 || r.NetNS == 0 || r.Proto != protocol || r.Last-r.First != hops-1 {
		t.Errorf("step %d: the record says %s", step, b)
	}
	for _, o := range found {
		if o.Block != r.Block || o.Alive || o.PID != 0 || o.Owner != "" {
			t.Errorf("step %d: found %+v, want it dead and in block %d", step, o, r.Block)
		}
	}
}

// TestNextOwnerCleansItsBlock claims the block that a dead owner had.
func TestNextOwnerCleansItsBlock(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	if err := l.child(t, 12, "").Wait(); err == nil {
		t.Fatal("the child was not killed")
	}
	if len(must2(Find(int(l.host.NS().Fd())))(t)) == 0 {
		t.Fatal("the child left nothing")
	}
	ls := l.lanes(t, Options{})
	mark, err := ls.Lane(l.via("198.51.100.1", l.eth1))
	must(t, err)
	if mark != 0x5b000000 {
		t.Errorf("the mark is %#x, want the first of the dead owner's", mark)
	}
	if found := must2(Find(int(l.host.NS().Fd())))(t); len(found) != 3 {
		t.Errorf("the host has %+v, want the three objects of a lane", found)
	}
	must(t, ls.Close())
	l.same(t, before)
}

// must2 wants a value and no error.
func must2[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}
