package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
	"github.com/netsandbox/netsandbox/backends/nstest/killpoint"
)

// faultWorld is a machine whose files are on one device that fails on demand and
// whose state directory is on another.
type faultWorld struct {
	*crashWorld
	host, disk    *faultfs.FS // of the base, of the state directory
	before, after []string
	n             int
	name          string   // of the environment
	older         []string // transactions before it
}

func newFaultWorld(t *testing.T, kind faultfs.Kind) *faultWorld {
	t.Helper()
	nstest.New(t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.NFT, nstest.Tool(kind.Mkfs[0]), nstest.Tool("mkfs.ext4"))
	w := &faultWorld{crashWorld: &crashWorld{t: t, bin: installed(t)}, host: faultfs.New(t, kind), disk: faultfs.New(t, faultfs.Ext4)}
	w.state, w.base = filepath.Join(w.disk.Dir, "state"), filepath.Join(w.host.Dir, "base")
	w.crashWorld.env = append(os.Environ(), "NETSANDBOX_STATE_DIR="+w.state)
	t.Cleanup(w.die)
	if err := errors.Join(os.Chmod(w.host.Dir, 0o755), os.Chmod(w.disk.Dir, 0o755), os.Mkdir(w.base, 0o755)); err != nil {
		t.Fatal(err)
	}
	sh := exec.Command("sh", "-c", crashSetup)
	sh.Dir = w.base
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("set up base: %v: %s", err, out)
	}
	w.before = w.tree()
	w.fresh()
	w.must("apply", w.name, "--yes")
	w.after = w.tree()
	w.must("rollback", w.settled().ID, "--yes")
	w.must("discard", w.name, "--yes")
	return w
}

// fresh makes an environment whose change is planned and not yet applied.
func (w *faultWorld) fresh() {
	w.t.Helper()
	w.n++
	w.older = w.transactions()
	w.name = fmt.Sprintf("e%d", w.n)
	w.must("create", w.name, "--base", w.base, "--capture-connections=false")
	w.must("exec", w.name, "--", "sh", "-c", "cd "+w.base+" && "+crashChange)
	w.must("check", w.name)
	w.must("plan", w.name)
	w.host.Sync()
	w.disk.Sync()
}

// tree is the base as text. What stands hidden at the top of its mount is not
// part of it.
func (w *faultWorld) tree() []string {
	w.t.Helper()
	lines, err := tree(w.base)
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "./.netsandbox-") })
}

// hidden lists what transactions left on the host beside the base's own files.
func (w *faultWorld) hidden() []string {
	w.t.Helper()
	var out []string
	for _, dir := range []string{w.host.Dir, w.base} {
		found, err := filepath.Glob(filepath.Join(dir, ".netsandbox-*"))
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, found...)
	}
	return out
}

// ended is how a verb that was struck ended.
type ended struct {
	exit int
	text string // everything it printed
}

// limit bounds a verb: whatever fails, it answers.
const limit = 60 * time.Second

// struck runs a verb and calls strike when it stands in the phase for the first
// time, right before one of its durable steps. If strike says no, it dies there.
func (w *faultWorld) struck(p phase, strike func() (goOn bool), args ...string) ended {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "netsandbox"), args...)
	cmd.Env, cmd.Dir = w.crashWorld.env, "/"
	out, err := os.CreateTemp(w.t.TempDir(), "out")
	if err != nil {
		w.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	hit, dead := false, false
	err = killpoint.Run(cmd, func(_ int, _ killpoint.Step, when killpoint.When) bool {
		if when == killpoint.Before && !hit && p.is(w) {
			hit, dead = true, !strike()
		}
		return !dead
	})
	text, rerr := os.ReadFile(out.Name())
	var exit *killpoint.ExitError
	switch {
	case rerr != nil:
		w.t.Fatal(rerr)
	case !hit:
		w.t.Fatalf("%s was never in phase %s: %v: %s", args[0], p.name, err, text)
	case err != nil && !errors.As(err, &exit):
		w.t.Fatal(err)
	case exit != nil && exit.Signal != 0 && !dead:
		w.t.Fatalf("%s struck in phase %s did not end: %v: %s", args[0], p.name, exit, text)
	}
	e := ended{text: string(text)}
	if exit != nil {
		e.exit = exit.Code
	}
	return e
}

// unwatched waits for the keeper's end. It is not told to: a keeper that cannot
// undo ends too, and says so in its log.
func (w *faultWorld) unwatched() {
	w.t.Helper()
	for deadline := time.Now().Add(limit); len(w.keepers()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("the keeper did not end")
		}
	}
}

// reboot takes the power away from both disks, ends every process of this world,
// and starts the disks again.
func (w *faultWorld) reboot() {
	w.t.Helper()
	w.host.Cut()
	w.disk.Cut()
	w.die()
	w.host.Remount()
	w.disk.Remount()
}

// die kills every process of this world, which all run its own copy of the
// program. What lives in a view goes with the view's init.
func (w *faultWorld) die() {
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		exes, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			w.t.Fatal(err)
		}
		alive := 0
		for _, exe := range exes {
			to, err := os.Readlink(exe)
			if err != nil || filepath.Dir(to) != w.bin {
				continue
			}
			alive++
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe))); err == nil {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if alive == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d processes do not die", alive)
		}
	}
}

// phase is a part of a transaction's life, told by its file and the host.
type phase struct {
	name string
	is   func(w *faultWorld) bool
}

var kindOf = regexp.MustCompile(`\{"kind":"([a-z]+)","at":`)

// last is the last record of this environment's transaction; "none" before there
// is one, "" before it has a record.
func (w *faultWorld) last() string {
	logs := w.transactions()
	logs = slices.DeleteFunc(logs, func(l string) bool { return slices.Contains(w.older, l) })
	if len(logs) == 0 {
		return "none"
	}
	b, err := os.ReadFile(logs[0])
	if err != nil {
		w.t.Fatal(err)
	}
	all := kindOf.FindAllSubmatch(b, -1)
	if len(all) == 0 {
		return ""
	}
	return string(all[len(all)-1][1])
}

// transactions lists the files of all transactions.
func (w *faultWorld) transactions() []string {
	w.t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.state, "txns", "*", "log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return logs
}
