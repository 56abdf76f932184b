package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/workflow"
)

// askTerminal finds out how authority is given: by the command itself, or, where the
// environment wants it, by a human who types on the controlling terminal. A
// pipe cannot answer: the terminal is opened by its name.
func (a *app) askTerminal(ctx context.Context, w *workflow.Workflow, name, digest string) (how string, err error) {
	doc, err := w.Inspect(ctx, name)
	if err != nil {
		return "", err
	}
	if doc.Policy.Authority != string(authority.Terminal) {
		return "authorize", nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("%s wants authority from a terminal: %w", name, err)
	}
	defer tty.Close()
	fmt.Fprintf(tty, "Let plan %s of %s change this host? Type the environment's name: ", oneLine(digest), name)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(tty).ReadString('\n') // an error is an empty answer
		answer <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case got := <-answer:
		if got != name {
			return "", errors.New("not authorized: the answer was another one")
		}
	}
	return "terminal", nil
}
