package workflow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/netsandbox/netsandbox/workflow/journal"
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

// trustStateDir checks an existing state directory and every parent of it.
func trustStateDir(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("resolve state directory: %w", err)
	}
	uid := uint32(os.Geteuid())
	st, err := lstat(real)
	if err != nil {
		return err
	}
	if st.Uid != uid {
		return hint(fmt.Errorf("state directory %s is owned by uid %d, not by uid %d", dir, st.Uid, uid), "%s", ownDir)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return hint(fmt.Errorf("state directory %s is not a directory", dir), "%s", ownDir)
	}
	if st.Mode&0o077 != 0 {
		fix := ownDir
		if ours(real) {
			fix = "chmod 700 " + dir
		}
		return hint(fmt.Errorf("state directory %s has mode %04o; it holds copies of credentials", dir, st.Mode&0o7777), "%s", fix)
	}
	for p := filepath.Dir(real); ; p = filepath.Dir(p) {
		st, err := lstat(p)
		if err != nil {
			return err
		}
		// In a sticky directory nobody but the owner can rename our entry.
		writable := st.Mode&0o022 != 0 && st.Mode&syscall.S_ISVTX == 0
		if st.Uid != 0 && st.Uid != uid || writable {
			return hint(fmt.Errorf("state directory %s lies below %s, which others can write to", dir, p),
				"netsandbox --state-dir DIR below directories of root")
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
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

func lstat(path string) (*syscall.Stat_t, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("inspect state directory: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("inspect state directory: %w", errors.ErrUnsupported)
	}
	return st, nil
}
