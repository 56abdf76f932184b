package workflow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/netsandbox/netsandbox/workflow/journal"
	"github.com/netsandbox/netsandbox/workflow/statedir"
)

// Places in the state directory. An environment's own directory belongs to its
// backend but for the files named here.
const (
	envsDir       = "envs"       // one directory per live environment
	plansDir      = "plans"      // frozen plans by digest
	txnsDir       = "txns"       // one directory per transaction
	tombstonesDir = "tombstones" // environments that ended but are not deleted yet
	specFile      = "spec.json"  // what exec needs to start a view without the journal
)

// prepareStateDir makes the state directory, or says why it may not hold what
// it will hold: copies of credentials, and what a later root command trusts.
// It must be private to its owner, who is the caller (for root: root), and
// nobody else may be able to put another directory in its place.
func prepareStateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if err := trustStateDir(dir); err != nil {
		return err
	}
	for _, d := range []string{envsDir, plansDir, txnsDir, tombstonesDir} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make state directory: %w", err)
		}
	}
	return nil
}

// trustStateDir checks an existing state directory and says the way out.
func trustStateDir(dir string) error {
	real, err := statedir.Trust(dir)
	var bad *statedir.Error
	if !errors.As(err, &bad) {
		return err
	}
	switch {
	case bad.What == statedir.Below:
		return hint(err, "netsandbox --state-dir DIR below directories of root")
	case bad.What == statedir.Open && ours(real):
		return hint(err, "chmod 700 %s", dir)
	}
	return hint(err, "%s", ownDir)
}

// ownDir is the way out for a path that is no state directory.
const ownDir = "netsandbox --state-dir DIR with a directory of your own"

// ours reports whether a directory is a state directory, or could become one. Of
// any other nobody may be told to change the mode: it may be /tmp.
func ours(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, journal.File)); err == nil {
		return true
	}
	list, err := os.ReadDir(dir)
	return err == nil && len(list) == 0
}
