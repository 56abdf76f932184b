package workflow

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
)

// namePattern is the whole grammar of an environment name. It keeps a name fit
// for a directory, a cgroup and a prompt.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// checkName refuses what is not an environment name.
func checkName(name string) error {
	if namePattern.MatchString(name) {
		return nil
	}
	return hint(fmt.Errorf("%w %q", ErrInvalidName, change.Escape(name)),
		"a name matches [a-z0-9][a-z0-9._-]{0,62}")
}

// resolvePath turns a path of the command line into an absolute one below base.
// A relative path is relative to the base. It works on the text only: links are
// the backend's to refuse, at the moment it opens the path.
func resolvePath(base, path string) (change.Path, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("%w: a path is empty or contains NUL", ErrUsage)
	}
	for _, e := range strings.Split(path, "/") {
		if e == ".." {
			return "", hint(fmt.Errorf("%w: %s contains \"..\"", ErrUsage, change.Escape(path)), "name the path without it")
		}
	}
	abs := path
	if !filepath.IsAbs(path) {
		abs = filepath.Join(base, path)
	}
	abs = filepath.Clean(abs)
	if !below(abs, base) {
		return "", hint(fmt.Errorf("%s is outside the base %s", change.Escape(abs), change.Escape(base)),
			"netsandbox create NAME --base DIR with a base that contains it")
	}
	if abs == base {
		return "", hint(fmt.Errorf("%s is the base itself", change.Escape(abs)), "name a path below it")
	}
	return change.Path(abs), nil
}

// below reports whether path is base or lies under it.
func below(path, base string) bool {
	return path == base || base == "/" || strings.HasPrefix(path, base+"/")
}
