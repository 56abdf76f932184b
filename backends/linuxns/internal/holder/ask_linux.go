package holder

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Questions from inside. The state directory is covered in the view, so what a
// person in it wants to know of its environment is answered out here, by the
// program's own verbs: those that look, for the environment's owner, about this
// environment. The command line is made here; nothing of it is taken as sent.

// answered are the verbs, with whether they take a path.
var answered = map[string]bool{"check": false, "changes": false, "diff": true, "status": false, "connections": false}

// The limits of one question.
const (
	askTime = 5 * time.Minute
	askEnv  = 16   // variables
	askLen  = 4096 // bytes of a path or variable
)

// listenInside makes the socket for questions, in the view's network namespace,
// and serves it until that namespace is replaced.
func (h *Holder) listenInside() error {
	var l *wire.Listener
	err := netns.Do(h.net, func() (err error) {
		l, err = wire.ListenAsk()
		return err
	})
	if err != nil {
		return err
	}
	if h.asks != nil {
		h.asks.Close()
	}
	h.asks = l
	go accept(l, h.answer)
	return nil
}

// answer serves one question.
func (h *Holder) answer(c *wire.Conn) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	var q wire.Ask
	_, fds, err := c.Recv(&q)
	wire.CloseAll(fds)
	if err != nil {
		return
	}
	c.SetDeadline(time.Time{})
	argv, err := h.question(c, q)
	if err != nil {
		c.Send(wire.Answer{Error: err.Error(), Exit: 1}, nil)
		return
	}
	// One at a time: a canary that asks for a check would run itself.
	if !h.asking.TryLock() {
		c.Send(wire.Answer{Error: "another question from inside is being answered; try again", Exit: 75}, nil)
		return
	}
	defer h.asking.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	go func() { // whoever asked may go away
		c.HungUp()
		cancel()
	}()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", argv...)
	cmd.Args[0] = "netsandbox"
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, proxies(q.Env)...)
	cmd.Stdout, cmd.Stderr = &stream{c, 1}, &stream{c, 2}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil || errors.As(err, &exit) && exit.Exited():
		c.Send(wire.Answer{Exited: true, Exit: cmd.ProcessState.ExitCode()}, nil)
	default:
		c.Send(wire.Answer{Error: fmt.Sprintf("answer %s: %v", q.Verb, err), Exit: 1}, nil)
	}
}

// question checks who asks what, and makes the command line.
func (h *Holder) question(c *wire.Conn, q wire.Ask) ([]string, error) {
	who, err := c.Peer()
	if err != nil {
		return nil, err
	}
	if who.UID != h.spec.UID+uint32(h.mode.Shift) {
		return nil, fmt.Errorf("environment %s answers its owner only", h.spec.Name)
	}
	pathed, ok := answered[q.Verb]
	if !ok || q.Path != "" && !pathed || len(q.Path) > askLen || strings.ContainsRune(q.Path, 0) {
		return nil, fmt.Errorf("not from inside %s", h.spec.Name)
	}
	argv := []string{"--state-dir", h.spec.StateRoot, q.Verb}
	if q.JSON {
		argv = append(argv, "--json")
	}
	if q.Secrets && q.Verb == "diff" {
		argv = append(argv, "--secrets")
	}
	if q.Timeout != "" && q.Verb == "check" {
		d, err := time.ParseDuration(q.Timeout)
		if err != nil {
			return nil, fmt.Errorf("not a duration: %q", q.Timeout)
		}
		argv = append(argv, "--timeout="+d.String())
	}
	argv = append(argv, "--", h.spec.Name)
	if q.Path != "" {
		argv = append(argv, q.Path)
	}
	return argv, nil
}

// proxies picks the variables that canaries share with whoever asks. Others could
// steer the verb itself.
func proxies(env []string) (out []string) {
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		known := slices.Contains([]string{"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"}, strings.ToLower(name))
		if ok && known && len(kv) <= askLen && !strings.ContainsRune(kv, 0) && len(out) < askEnv {
			out = append(out, kv)
		}
	}
	return out
}

// stream sends output as answers.
type stream struct {
	c *wire.Conn
	n int
}

func (s *stream) Write(b []byte) (int, error) {
	if err := s.c.Send(wire.Answer{Stream: s.n}, b); err != nil {
		return 0, err
	}
	return len(b), nil
}
