package upper

import (
	"path"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
)

// policy decides which changes are ephemeral: by-products of running commands,
// shown apart and never planned unless staged by name.
type policy struct {
	base   string
	staged []change.Path
}

// ephemeralDirs hold by-products only. One is ignored when the environment's
// base is at or below it: somebody chose that place.
var ephemeralDirs = []string{"/tmp", "/var/tmp", "/var/log", "/var/cache"}

// ephemeralNames are by-products wherever they lie.
var ephemeralNames = []string{
	"__pycache__", ".bash_history", ".zsh_history", ".sh_history", ".ash_history", ".history",
	".python_history", ".node_repl_history", ".psql_history", ".mysql_history", ".sqlite_history",
	".lesshst", ".viminfo", ".wget-hsts", ".pwd.lock", ".sudo_as_admin_successful",
}

// keptPrefix begins the names of the directories in which transactions keep what
// they displaced. A view sees them, and what cleans up in it shall not take the
// originals from the host with a plan.
const keptPrefix = ".netsandbox-apply-"

func (p policy) ephemeral(path change.Path) bool {
	return byProduct(string(path), p.base) && !p.named(path)
}

// named reports a path that is at or below one staged by name.
func (p policy) named(path change.Path) bool {
	return slices.ContainsFunc(p.staged, func(s change.Path) bool { return within(string(path), string(s)) })
}

// holds reports a directory above a staged path: when it is new, the staged
// path cannot exist without it.
func (p policy) holds(dir change.Path) bool {
	return slices.ContainsFunc(p.staged, func(s change.Path) bool { return within(string(s), string(dir)) })
}

func (p policy) inBase(path change.Path) bool { return within(string(path), p.base) }

func byProduct(name, base string) bool {
	for _, dir := range ephemeralDirs {
		if within(name, dir) && !within(base, dir) {
			return true
		}
	}
	for element := range strings.SplitSeq(name, "/") {
		if slices.Contains(ephemeralNames, element) || strings.HasPrefix(element, keptPrefix) {
			return true
		}
	}
	leaf := path.Base(name)
	switch {
	case strings.HasSuffix(leaf, ".pyc"), strings.HasSuffix(leaf, ".pid"):
		return true
	case strings.HasPrefix(name, "/var/lib/"):
		// dpkg and apt keep theirs as lock, lock-frontend.
		return strings.HasSuffix(leaf, ".lock") || leaf == "lock" || leaf == "lock-frontend"
	}
	return false
}

// within reports whether name is dir or lies below it.
func within(name, dir string) bool {
	if dir == "/" || dir == "" {
		return true
	}
	return name == dir || strings.HasPrefix(name, dir) && name[len(dir)] == '/'
}
