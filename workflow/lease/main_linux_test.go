package lease

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

// A test's applier and its keeper are this binary started again. They share a
// directory: host is what a trial changes, txn the transaction file, and every
// other file is a word one of them left for the test.
const partVar = "LEASE_TEST_PART"

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == Command:
		err = playKeeper(os.Args[2])
	case os.Getenv(partVar) == "leader":
		err = playLeader(os.Args[1:])
	case os.Getenv(partVar) == "applier":
		err = playApplier(os.Args[1], os.Args[2])
	default:
		nstest.Main(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// place is the shared directory.
type place string

func (p place) file(name string) string { return filepath.Join(string(p), name) }

func (p place) has(name string) bool {
	_, err := os.Lstat(p.file(name))
	return err == nil
}

func (p place) read(name string) string {
	b, _ := os.ReadFile(p.file(name))
	return string(b)
}

// leave writes a word whole or not at all.
func (p place) leave(name, text string) error {
	if err := os.WriteFile(p.file(name)+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(p.file(name)+".new", p.file(name))
}

// undo makes the host as it was.
func (p place) undo() error { return os.Truncate(p.file("host"), 0) }

func playKeeper(dir string) error {
	p := place(dir)
	if p.has("stillborn") {
		return errors.New("stillborn")
	}
	return Keep(context.Background(), FD, KeepConfig{
		Undo: func(_ context.Context, reason Reason) error {
			if err := p.undo(); err != nil {
				return err
			}
			return p.leave("undone", string(reason))
		},
		Decided: func() (bool, error) { return p.read("txn") != "armed", nil },
		Probe: func(context.Context) error {
			if p.has("cut") {
				return errors.New("connect: no route to host")
			}
			return nil
		},
		Settle: func() error { return p.leave("settled", "") },
	})
}

// playLeader starts an applier in its own session and ends when stdin does.
func playLeader(args []string) error {
	os.Setenv(partVar, "applier")
	in, err := os.Open("/dev/zero") // the applier's input never ends
	if err != nil {
		return err
	}
	proc, err := os.StartProcess("/proc/self/exe", append([]string{"applier"}, args...), &os.ProcAttr{
		Files: []*os.File{in, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	_ = proc.Release()
	return err
}

// playApplier changes the host without pause while it holds a lease, and does
// what it is told on stdin.
func playApplier(dir, how string) error {
	p := place(dir)
	cfg := Config{
		TxnPath: p.file("txn"), Bound: 400 * time.Millisecond, HardBreak: 200 * time.Millisecond, Grace: 200 * time.Millisecond,
		Args: []string{dir}, Env: os.Environ(),
	}
	if how == "patient" {
		cfg.Bound = 20 * time.Second
	}
	if how == "unconfirmed" {
		now, err := clock.Boottime()
		if err != nil {
			return err
		}
		cfg.ConfirmBy = now + 300*time.Millisecond
	}
	l, err := Arm(context.Background(), cfg)
	if err != nil {
		return err
	}
	fmt.Println("armed", l.PID())
	orders := make(chan string)
	go func() {
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			orders <- s.Text()
		}
	}()
	host, err := os.OpenFile(p.file("host"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	broken := l.Broken()
	if how == "deaf" {
		broken = nil
	}
	for t := time.NewTicker(time.Millisecond); ; {
		select {
		case <-t.C:
			if _, err := host.WriteString("x"); err != nil {
				return err
			}
		case <-l.Lost():
			return errors.Join(p.undo(), p.leave("lost", l.Err().Error()))
		case what := <-broken:
			if err := l.Undoing(); err != nil {
				return err
			}
			return errors.Join(p.undo(), p.leave("txn", "undo"), p.leave("broken", what), l.Release("undo"))
		case order := <-orders:
			switch order {
			case "commit":
				return errors.Join(p.leave("txn", "commit"), l.Release("commit"))
			case "forget":
				return l.Release("commit") // without a verdict
			case "vanish": // decided, released, and gone before the keeper looks
				if err := p.leave("txn", "commit"); err != nil {
					return err
				}
				if _, err := l.conn.Write(packet(msgRelease, "commit")); err != nil {
					return err
				}
				os.Exit(0)
			}
		}
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case <-deadline:
			t.Fatalf("gave up waiting: %s", what)
		case <-tick.C:
			if cond() {
				return
			}
		}
	}
}

func words(s string) []string { return strings.Fields(s) }
