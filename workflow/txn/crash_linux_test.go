package txn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/hostfiles"
)

// victimEnv holds an order, as JSON, for this binary to carry out and die of.
const victimEnv = "NETSANDBOX_TXN_VICTIM"

type order struct {
	Root, Dir string
	Scenario  string
	Die       int // the traced point at which to die; -1 for none
}

// scenarios are the whole lives of a transaction. Each begins where an earlier
// one, named in after, has ended.
var scenarios = map[string]struct {
	after string
	run   func(o order) error
}{
	"trial and undo": {"", func(o order) error {
		x, err := o.trial()
		if err != nil {
			return err
		}
		_, err = x.Undo(context.Background(), o.host(), Applier, "")
		return err
	}},
	"a single deletion": {"", func(o order) error { return o.alone("/etc/app/gone", "-") }},
	"a single mode":     {"", func(o order) error { return o.alone("/etc/mode", "/") }},
	"trial and commit": {"", func(o order) error {
		x, err := o.trial()
		if err != nil {
			return err
		}
		return errors.Join(x.Commit(Applier, ""), x.Clean(context.Background(), o.host()))
	}},
	"prune": {"trial and commit", func(o order) error {
		return o.open(func(x *Txn) error { return x.Prune(context.Background(), o.host()) })
	}},
	"late rollback": {"trial and commit", func(o order) error {
		return o.open(func(x *Txn) error {
			_, err := x.Rollback(context.Background(), o.host(), Operator, "")
			return err
		})
	}},
	"late rollback of what was pruned": {"prune", func(o order) error {
		return o.open(func(x *Txn) error {
			_, err := x.Rollback(context.Background(), o.host(), Operator, "")
			return err
		})
	}},
	"recovery of a trial": {"abandoned trial", func(o order) error {
		return o.open(func(x *Txn) error {
			_, err := Recover(context.Background(), x.Dir(), o.host(), "boot-2")
			return err
		})
	}},
	"abandoned trial": {"", func(o order) error {
		_, err := o.trial()
		return err
	}},
}

func (o order) host() *hostfiles.Host { return hostfiles.New(o.Root) }

func (o order) trial() (*Txn, error) { return o.trialOf(wantedFiles) }

// alone is trial and undo of one change.
func (o order) alone(p, what string) error {
	x, err := o.trialOf([][2]string{{p, what}})
	if err != nil {
		return err
	}
	_, err = x.Undo(context.Background(), o.host(), Applier, "")
	return err
}

func (o order) trialOf(files [][2]string) (*Txn, error) {
	wanted, host, ctx := contents{}, o.host(), context.Background()
	var cs []change.Change
	for _, f := range files {
		c, err := planOne(host, wanted, f[0], f[1])
		if err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	x, err := Create(o.Dir, Header{BootID: "boot-1"})
	if err != nil {
		return nil, err
	}
	return x, errors.Join(
		x.Prepare(ctx, host, cs), x.Arm(Keeper{PID: os.Getpid()}),
		x.Stage(ctx, host, wanted), x.Swap(ctx, host))
}

func (o order) open(f func(*Txn) error) error {
	dirs, err := List(o.Dir)
	if err != nil || len(dirs) != 1 {
		return fmt.Errorf("transactions %v: %w", dirs, err)
	}
	x, err := Open(dirs[0])
	if err != nil {
		return err
	}
	return errors.Join(f(x), x.Close())
}

// victim carries out the order in the environment.
func victim() error {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &o); err != nil {
		return err
	}
	n := 0
	step := func(point string) {
		fmt.Println(point)
		if n == o.Die {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // not one instruction more
		}
		n++
	}
	TestOnlyStep, hostfiles.TestOnlyStep = step, step
	return scenarios[o.Scenario].run(o)
}

// send runs the order in another process and returns the points it passed.
func send(t *testing.T, o order) []string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var dead *exec.ExitError
	switch {
	case o.Die < 0 && err != nil:
		t.Fatalf("%s: %v\n%s", o.Scenario, err, errs.String())
	case o.Die >= 0 && (!errors.As(err, &dead) || dead.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL):
		t.Fatalf("%s did not die at point %d: %v\n%s", o.Scenario, o.Die, err, errs.String())
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// At every durable step a whole transaction took, right before and right after
// it, the process is killed. Recovery then leaves the host as before or as
// wanted, as the file says, and never a mixture.
func TestKilledAtEveryStep(t *testing.T) {
	for name, s := range scenarios {
		if name == "abandoned trial" { // only a beginning
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := outcomes(t)
			w := prepared(t, s.after)
			points := send(t, order{w.root, w.dir, name, -1})
			if len(points) < 4 || len(points)%2 != 0 {
				t.Fatalf("traced run passed %d points: %v", len(points), points)
			}
			for k, point := range points {
				w := prepared(t, s.after)
				if got := send(t, order{w.root, w.dir, name, k}); len(got) != k+1 {
					t.Fatalf("died after %d points, traced %d", len(got), k+1)
				}
				examine(t, w, point, before, after)
			}
			t.Logf("killed at %d of %d traced points", len(points), len(points))
		})
	}
}

// prepared makes a world in which the scenarios up to name have run.
func prepared(t *testing.T, name string) *world {
	w := newWorld(t)
	if name != "" {
		if first := scenarios[name].after; first != "" {
			send(t, order{w.root, w.dir, first, -1})
		}
		send(t, order{w.root, w.dir, name, -1})
	}
	return w
}

// outcomes returns the two hosts that are allowed.
func outcomes(t *testing.T) (before, after string) {
	w := newWorld(t)
	before = w.manifest()
	x := w.trial(w.begin())
	w.ok(x.Commit(Applier, ""))
	w.ok(x.Clean(context.Background(), w.host()))
	return before, wanted(w.manifest())
}

var dirTime = regexp.MustCompile(`(?m)^(".*" d.*) [0-9]+\.[0-9]{9}$`)

// wanted drops what may differ between two committed hosts: the backup, and the
// times of directories, which are those of the run.
func wanted(manifest string) string {
	var b strings.Builder
	for line := range strings.Lines(dirTime.ReplaceAllString(manifest, "$1")) {
		if !strings.HasPrefix(line, `"/.netsandbox-`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func examine(t *testing.T, w *world, point, before, after string) {
	t.Helper()
	dirs, err := List(w.dir)
	w.ok(err)
	status := Undone
	for _, d := range dirs {
		res, err := Recover(context.Background(), d, w.host(), "boot-2")
		if err != nil || len(res.Leftovers) > 0 {
			t.Errorf("killed %s: recover: %+v, %v", point, res, err)
			return
		}
		status = res.Status
	}
	switch got := w.manifest(); status {
	case Undone:
		if d := cmp.Diff(before, got); d != "" {
			t.Errorf("killed %s: undone, host (-before +now):\n%s", point, d)
		}
	case Committed:
		if d := cmp.Diff(after, wanted(got)); d != "" {
			t.Errorf("killed %s: committed, host (-wanted +now):\n%s", point, d)
		}
	default:
		t.Errorf("killed %s: status %s", point, status)
	}
}
