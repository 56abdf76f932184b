package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/netsandbox/netsandbox/backends/demonet"
	"github.com/netsandbox/netsandbox/workflow/report"
)

const (
	endpoint = "http://" + demonet.API + "/health"
	oldProxy = demonet.Gateway + ":3128"
	newProxy = demonet.Gateway + ":3129"
	noProxy  = demonet.Gateway + ":3182" // two digits exchanged, as it happens
	inside   = "127.0.0.1:3130"          // answered by a daemon in the view only
)

// teller runs the verbs and shows what a person would see.
type teller struct {
	ctx    context.Context
	out    io.Writer
	exe    string
	place  string // the directory of the world: the host's files, the state directory
	config string
	last   string // output of the last verb
	id     string // of the environment
	ended  bool   // it was discarded
}

// tell is the story, in the world, with the network around it.
func tell(ctx context.Context, place string, out io.Writer) (err error) {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	t := &teller{ctx: ctx, out: out, exe: exe, place: place, config: filepath.Join(place, "host", "etc", "proxy.conf")}
	if err := os.MkdirAll(filepath.Dir(t.config), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(place, "state"), 0o700); err != nil {
		return err
	}
	if err := t.configure(oldProxy); err != nil {
		return err
	}
	n, err := demonet.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	for _, proxy := range []string{oldProxy, newProxy} {
		if err := n.OnGateway(ctx, proxy, exe, Command, "proxy", proxy); err != nil {
			return err
		}
	}
	if err := n.OnAPI(ctx, demonet.API+":80", exe, Command, "api", demonet.API+":80"); err != nil {
		return err
	}
	// An environment has control groups, which are the machine's and would stay.
	defer func() { err = errors.Join(err, t.discarded(context.WithoutCancel(ctx))) }()
	for _, chapter := range []func() error{t.begin, t.broken, t.repaired, t.treacherous, t.end} {
		if err := chapter(); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the host's configuration, before the story begins.
func (t *teller) configure(proxy string) error {
	f, err := os.OpenFile(t.config, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "proxy = %s\n", proxy)
	return errors.Join(err, f.Close())
}

func (t *teller) begin() error {
	t.say("A host (%s) reaches its API (%s) through a proxy on the gateway (%s).", demonet.HostAddr, demonet.API, oldProxy)
	t.say("%s says so:", t.config)
	if err := t.shows("proxy = " + oldProxy); err != nil {
		return err
	}
	t.chapter("An environment, and what must survive")
	if err := t.run(0, "create", "edge", "--base", filepath.Join(t.place, "host"), "--description", "move to the new proxy"); err != nil {
		return err
	}
	if err := t.learn(); err != nil {
		return err
	}
	return t.run(0, "circuit", "add", "edge", "api-heartbeat", "--", t.exe, Command, "heartbeat", t.config)
}

func (t *teller) broken() error {
	t.chapter("A change with a typing error: refused before the host hears of it")
	if err := t.edit(noProxy); err != nil {
		return err
	}
	if err := t.run(2, "check", "edge"); err != nil {
		return err
	}
	if err := t.wants("api-heartbeat", "Lost"); err != nil {
		return err
	}
	if err := t.run(2, "plan", "edge"); err != nil {
		return err
	}
	t.say("The host still has:")
	return t.shows("proxy = " + oldProxy)
}

func (t *teller) repaired() error {
	t.chapter("The repaired change: rehearsed, proven, applied")
	if err := t.edit(newProxy); err != nil {
		return err
	}
	for _, verb := range [][]string{{"check", "edge"}, {"diff", "edge"}, {"plan", "edge"}, {"apply", "edge", "--yes"}} {
		if err := t.run(0, verb...); err != nil {
			return err
		}
	}
	if err := t.wants("Committed"); err != nil {
		return err
	}
	t.say("The host has now:")
	return t.shows("proxy = " + newProxy)
}

func (t *teller) treacherous() error {
	t.chapter("A change that works only where it was rehearsed: it undoes itself")
	t.say("A daemon started in the view answers %s there. On the host nothing does.", inside)
	if err := t.run(0, "exec", "edge", "--detach", "--", t.exe, Command, "proxy", inside); err != nil {
		return err
	}
	if err := t.quietly("exec", "edge", "--", t.exe, Command, "reach", inside); err != nil {
		return err
	}
	if err := t.edit(inside); err != nil {
		return err
	}
	if err := t.run(0, "check", "edge"); err != nil {
		return err
	}
	if err := t.run(3, "apply", "edge", "--yes"); err != nil {
		return err
	}
	if err := t.wants("Rolled back", "outage"); err != nil {
		return err
	}
	t.say("The host has what it had before:")
	return t.shows("proxy = " + newProxy)
}

func (t *teller) end() error {
	t.chapter("What is on record")
	if err := t.run(0, "history"); err != nil {
		return err
	}
	err := t.run(0, "discard", "edge", "--yes")
	t.ended = err == nil
	return err
}

// discarded ends the environment where the story did not come to it, and looks
// whether its control groups are gone.
func (t *teller) discarded(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, t.exe, "discard", "edge", "--yes")
	cmd.Env = t.environ()
	out, err := cmd.CombinedOutput()
	if err != nil && t.id != "" && !t.ended {
		return fmt.Errorf("discard the environment: %w: %s", err, out)
	}
	if t.id == "" {
		return nil
	}
	left, err := demonet.Groups(t.id)
	if len(left) > 0 {
		err = fmt.Errorf("control groups are left: %s", strings.Join(left, ", "))
	}
	return err
}

// learn finds out the environment's id.
func (t *teller) learn() error {
	cmd := exec.CommandContext(t.ctx, t.exe, "--json", "status", "edge")
	cmd.Env = t.environ()
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("ask for the environment: %w", err)
	}
	var doc report.Status
	if err := json.Unmarshal(out, &doc); err != nil {
		return fmt.Errorf("ask for the environment: %w", err)
	}
	t.id = doc.ID
	return nil
}

// quietly runs a verb that is no part of the story.
func (t *teller) quietly(args ...string) error {
	cmd := exec.CommandContext(t.ctx, t.exe, args...)
	cmd.Env = t.environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, out)
	}
	return nil
}

func (t *teller) environ() []string {
	return append(os.Environ(), "NETSANDBOX_STATE_DIR="+filepath.Join(t.place, "state"))
}

// edit is the agent's own way of changing a configuration: a command that knows
// nothing of netsandbox.
func (t *teller) edit(proxy string) error {
	return t.run(0, "exec", "edge", "--", "sed", "-i", "s/^proxy = .*/proxy = "+proxy+"/", t.config)
}

// run runs one verb, shows it with its output, and wants its exit code.
func (t *teller) run(want int, args ...string) error {
	shown := make([]string, len(args))
	for i, a := range args {
		if a == t.exe {
			a = "netsandbox"
		}
		if strings.ContainsAny(a, " ^*$") {
			a = "'" + a + "'"
		}
		shown[i] = a
	}
	fmt.Fprintf(t.out, "\n$ netsandbox %s\n", strings.Join(shown, " "))
	var both bytes.Buffer
	cmd := exec.CommandContext(t.ctx, t.exe, args...)
	cmd.Env = t.environ()
	cmd.Stdout = io.MultiWriter(t.out, &both)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	t.last = both.String()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		return fmt.Errorf("netsandbox %s: exit status %d, and the story wants %d", args[0], got, want)
	}
	if want != 0 {
		fmt.Fprintf(t.out, "(exit status %d)\n", want)
	}
	return nil
}

// wants fails the story when the last verb did not say something.
func (t *teller) wants(words ...string) error {
	for _, w := range words {
		if !strings.Contains(t.last, w) {
			return fmt.Errorf("the story wants to read %q", w)
		}
	}
	return nil
}

// shows prints the host's configuration, which must be what is wanted.
func (t *teller) shows(want string) error {
	b, err := os.ReadFile(t.config)
	if err != nil {
		return err
	}
	fmt.Fprintf(t.out, "    %s", b)
	if got := strings.TrimSpace(string(b)); got != want {
		return fmt.Errorf("%s holds %q, and the story wants %q", t.config, got, want)
	}
	return nil
}

func (t *teller) chapter(title string) { fmt.Fprintf(t.out, "\n== %s\n", title) }

func (t *teller) say(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }
