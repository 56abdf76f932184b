package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/report"
)

var update = flag.Bool("update", false, "rewrite the expectations of the scripts")

const scripts = "../../testdata/script"

// TestScripts runs testdata/script against the program. A script that needs a
// kernel says so with the command host, which gives it one of its own.
func TestScripts(t *testing.T) {
	bin := installed(t)
	work := t.TempDir()
	if err := os.Chmod(work, 0o755); err != nil { // scripts run as other users, too
		t.Fatal(err)
	}
	seen := &tally{events: map[string]bool{}}
	t.Cleanup(func() { seen.check(t) })
	params := testscript.Params{
		UpdateScripts:      *update,
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			e.Setenv("NETSANDBOX", filepath.Join(bin, "netsandbox"))
			e.Setenv("LAB", filepath.Join(bin, "lab")) // canaries have a search path of their own
			e.Setenv("NETSANDBOX_STATE_DIR", filepath.Join(e.WorkDir, "state"))
			e.Setenv("HOST", filepath.Join(e.WorkDir, "host"))
			e.Values[keyT] = e.T().(testing.TB)
			e.Values[keyUplinks] = new(uplinks)
			e.Defer(func() { seen.finish(e, bin) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"host": hostCmd, "exits": exitsCmd, "doc": docCmd,
			"until": untilCmd, "terminal": terminalCmd, "same": sameCmd, "field": fieldCmd, "txn": txnCmd, "blocks": blocksCmd,
			"uplinks": uplinksCmd, "at": atCmd, "netdump": netdumpCmd, "within": withinCmd,
		},
	}
	names, err := filepath.Glob(scripts + "/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for i, name := range names {
		// A directory for each, all made before the first script runs: what moves in
		// a directory above puts what a view made below it in doubt. Removed with the
		// test, after what a script mounted there is gone; the library would remove
		// it before.
		params.Files, params.WorkdirRoot = []string{name}, filepath.Join(work, strconv.Itoa(i))
		if err := os.Mkdir(params.WorkdirRoot, 0o755); err != nil {
			t.Fatal(err)
		}
		testscript.Run(t, params)
	}
}

type key string

const (
	keyT       key = "t"
	keyUplinks key = "uplinks"
)

// installed makes a directory with the programs that scripts run. They are the
// test binary under other names; a copy, because a process of ours is started
// by the name of its file.
func installed(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for dir := bin; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // other users run it too
			t.Fatal(err)
		}
	}
	for _, name := range []string{"netsandbox", "lab"} {
		if err := os.Link(self, filepath.Join(bin, name)); err == nil {
			continue
		}
		if err := copyFile(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// hostCmd gives the script a kernel of its own: `host overlay tun`. What follows
// runs in fresh network and mount namespaces, and $HOST is a directory that plays
// the host's files. It is a mount of its own, because a transaction hides what it
// stages at the top of its target's mount.
func hostCmd(ts *testscript.TestScript, neg bool, args []string) {
	known := map[string]nstest.Req{"overlay": nstest.Overlay, "tun": nstest.TUN, "nft": nstest.NFT, "userns": nstest.UserNS}
	var reqs []nstest.Req
	for _, a := range args {
		r, ok := known[a]
		if !ok {
			r = nstest.Tool(a)
		}
		reqs = append(reqs, r)
	}
	t := ts.Value(keyT).(testing.TB)
	nstest.New(t, reqs...)
	ts.Check(os.MkdirAll(ts.Getenv("HOST"), 0o755))
	ts.Check(bindOnItself(ts.Getenv("HOST")))
}

// exitsCmd runs a command and wants its exact exit status: `exits 2 netsandbox
// plan e`. Its output is there for stdout and stderr.
func exitsCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// untilCmd runs a command again and again until it succeeds, within a deadline:
// `until 5s lab dial 127.0.0.1:80`.
func untilCmd(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] until DURATION COMMAND ARG...")
	}
	within, err := time.ParseDuration(args[0])
	ts.Check(err)
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("not within %s: %v", within, err)
		}
	}
}

// sameCmd compares what is at two paths in everything that can be applied: type,
// mode, owner, time and content.
func sameCmd(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] same PATH PATH")
	}
	a, b := listing(ts, ts.MkAbs(args[0])), listing(ts, ts.MkAbs(args[1]))
	if slices.Equal(a, b) == neg {
		ts.Fatalf("%s:\n%s\n%s:\n%s", args[0], strings.Join(a, "\n"), args[1], strings.Join(b, "\n"))
	}
}

// fieldCmd sets a variable to a field of the last document: `field PLAN digest`.
func fieldCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: field VARIABLE KEY")
	}
	var doc map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc))
	v, ok := doc[args[1]].(string)
	if !ok {
		ts.Fatalf("no text in field %q", args[1])
	}
	ts.Setenv(args[0], v)
}

// txnCmd sets a variable, TXN by default, to the newest transaction.
func txnCmd(ts *testscript.TestScript, neg bool, args []string) {
	name := "TXN"
	if len(args) == 1 {
		name = args[0]
	}
	ts.Check(ts.Exec("netsandbox", "--json", "history"))
	var all []report.Transaction
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &all))
	if len(all) == 0 {
		ts.Fatalf("no transactions")
	}
	ts.Setenv(name, all[0].ID)
}

// documents says into which type each kind of document decodes.
var documents = map[string]func() any{
	"created": func() any { return new(report.Created) }, "environment": func() any { return new(report.Environment) },
	"staged": func() any { return new(report.Staged) }, "changes": func() any { return new(report.Changes) },
	"diff": func() any { return new(report.Diff) }, "check": func() any { return new(report.Check) },
	"plan": func() any { return new(report.Plan) }, "grant": func() any { return new(report.Grant) },
	"dry-run": func() any { return new(report.DryRun) }, "applied": func() any { return new(report.Applied) },
	"moved": func() any { return new(report.Moved) }, "circuits": func() any { return new(report.Circuits) },
	"connections": func() any { return new(report.Circuits) }, "status": func() any { return new(report.Status) },
	"inspect": func() any { return new(report.Inspect) }, "transaction": func() any { return new(report.Transaction) },
	"event": func() any { return new(report.Event) }, "doctor": func() any { return new(report.Doctor) },
	"recovered": func() any { return new(report.Recovered) }, "pruned": func() any { return new(report.Pruned) }, "states": func() any { return new(report.States) },
	"error": func() any { return new(report.Error) }, "version": func() any { return new(version) },
}

// docCmd decodes the last command's output as documents of one kind, strictly:
// `doc check`, with a list as `doc [] environment`, one a line as `doc lines event`.
func docCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: doc [[] | lines] KIND")
	}
	kind := args[len(args)-1]
	var raws []json.RawMessage
	out := ts.ReadFile("stdout")
	switch {
	case args[0] == "[]":
		ts.Check(json.Unmarshal([]byte(out), &raws))
	case args[0] == "lines":
		for l := range strings.Lines(out) {
			raws = append(raws, json.RawMessage(l))
		}
	default:
		raws = []json.RawMessage{json.RawMessage(out)}
	}
	for _, raw := range raws {
		ts.Check(decode(kind, raw))
	}
}

func decode(kind string, raw []byte) error {
	make, ok := documents[kind]
	if !ok {
		return fmt.Errorf("no document kind %q", kind)
	}
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	if want := report.Schema(kind); head.Schema != want {
		return fmt.Errorf("schema %q, want %q", head.Schema, want)
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(make()); err != nil {
		return fmt.Errorf("decode %s: %w", kind, err)
	}
	if d.More() {
		return fmt.Errorf("decode %s: more than one document", kind)
	}
	return nil
}

// tally collects the events of all scripts.
type tally struct {
	sync.Mutex
	events map[string]bool
	ran    int
}

// finish ends what a script left and looks at its journal.
func (s *tally) finish(e *testscript.Env, bin string) {
	state := e.Getenv("NETSANDBOX_STATE_DIR")
	if _, err := os.Stat(filepath.Join(state, "envs")); err != nil {
		return
	}
	t := e.Values[keyT].(testing.TB)
	run := func(args ...string) []byte {
		cmd := exec.Command(filepath.Join(bin, "netsandbox"), append([]string{"--state-dir", state}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Logf("%v: %v", args, err) // scripts damage things on purpose
		}
		return out
	}
	var events []report.Event
	_ = json.Unmarshal(run("--json", "events"), &events)
	s.Lock()
	s.ran++
	for _, ev := range events {
		s.events[ev.Event] = true
	}
	s.Unlock()
	var envs []report.Environment
	_ = json.Unmarshal(run("--json", "list"), &envs)
	for _, env := range envs {
		run("discard", env.Name, "--yes")
	}
}

// check fails when all scripts ran and an event of the contract was never seen.
func (s *tally) check(t *testing.T) {
	all, err := filepath.Glob(filepath.Join(scripts, "*.txtar"))
	if err != nil || t.Failed() || t.Skipped() || os.Geteuid() != 0 || flag.Lookup("test.run").Value.String() != "" {
		return
	}
	t.Logf("%d of %d scripts kept a journal", s.ran, len(all))
	for _, ev := range workflow.Events() {
		if !s.events[ev] {
			t.Errorf("no script emits %s", ev)
		}
	}
}

func bindOnItself(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on itself: %w", dir, err)
	}
	return nil
}
