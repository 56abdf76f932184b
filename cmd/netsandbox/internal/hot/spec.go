package hot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/workflow/statedir"
)

var errOwnedByRoot = errors.New("owned by root; use sudo")

// load reads the specification of the environment, which its owner wrote at
// create. The journal stays closed; it knows no more that exec needs.
func load(r Request) (spec backends.Spec, err error) {
	if inside := os.Getenv(EnvName); inside != "" {
		return spec, fmt.Errorf("%s: not from inside %s", r.Verb, inside)
	}
	if !validName(r.Name) {
		return spec, fmt.Errorf("invalid environment name %q", r.Name)
	}
	root, err := StateDir(r.StateDir, os.Getenv)
	if err != nil {
		return spec, err
	}
	if err := ours(root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return spec, fmt.Errorf("%s: %w", r.Name, err)
	}
	dir := filepath.Join(root, "envs", r.Name)
	f, err := statedir.OpenFile(filepath.Join(dir, "spec.json"), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return spec, missing(r.Name)
	}
	if err != nil {
		return spec, fmt.Errorf("read environment: %w", err)
	}
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&spec); err != nil {
		return spec, fmt.Errorf("read environment %s: %w", r.Name, err)
	}
	if uid := uint32(os.Geteuid()); spec.UID != uid {
		return spec, fmt.Errorf("environment belongs to another user: %s belongs to uid %d", r.Name, spec.UID)
	}
	if spec.Dir != dir && !same(spec.Dir, dir) {
		return spec, fmt.Errorf("environment %s was made in %s and is now in %s", r.Name, change.Escape(spec.Dir), change.Escape(dir))
	}
	return spec, nil
}

// same reports whether two names lead to one directory.
func same(a, b string) bool {
	fa, errA := os.Stat(a)
	fb, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(fa, fb)
}

// ours refuses a state directory that somebody else could write or put another
// one in the place of: what is in it decides what root runs.
func ours(dir string) error {
	_, err := statedir.Trust(dir)
	var bad *statedir.Error
	if errors.As(err, &bad) && bad.What == statedir.NotOurs && bad.UID == 0 {
		return errOwnedByRoot
	}
	return err
}

// missing says that there is no such environment, or, to somebody who could not
// see it, that it may be one of root's.
func missing(name string) error {
	if os.Geteuid() != 0 && errors.Is(ours(RootStateDir), errOwnedByRoot) {
		return fmt.Errorf("%s: %w", name, errOwnedByRoot)
	}
	return fmt.Errorf("environment not found: %s", name)
}

// validName reports whether s is [a-z0-9][a-z0-9._-]{0,62}.
func validName(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 63
}
