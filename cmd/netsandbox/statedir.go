package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/hot"
	"github.com/netsandbox/netsandbox/workflow"
)

const rootStateDir = hot.RootStateDir

// stateDir resolves the flag, then the variable, then the default.
func stateDir(flag string) (string, error) {
	return hot.StateDir(flag, os.Getenv)
}

// ownDir refuses root's directory to anybody else with the way in. Its content
// is hidden from them, so "not found" would be a guess.
func (a *app) ownDir() error {
	if os.Geteuid() != 0 && ownedByRoot(a.stateDir) {
		return fmt.Errorf("%s: %w", a.stateDir, errOwnedByRoot)
	}
	return nil
}

var errOwnedByRoot = errors.New("owned by root; use sudo")

func ownedByRoot(dir string) bool {
	fi, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Uid == 0
}

// named replaces "not found" where the environment may be one of root's.
func (a *app) named(err error, args []string) error {
	if errors.Is(err, workflow.ErrNotFound) && len(args) > 0 && os.Geteuid() != 0 && ownedByRoot(rootStateDir) {
		return fmt.Errorf("%s: %w", args[0], errOwnedByRoot)
	}
	return err
}
