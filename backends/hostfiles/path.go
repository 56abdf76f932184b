package hostfiles

import (
	"path"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
)

// split returns the directory of p and its last element.
func split(p change.Path) (change.Path, string) {
	d, base := path.Split(string(p))
	if d = strings.TrimRight(d, "/"); d == "" {
		d = "/"
	}
	return change.Path(d), base
}

// join appends one name to a directory.
func join(d change.Path, name string) change.Path {
	if d == "/" {
		return change.Path("/" + name)
	}
	return d + "/" + change.Path(name)
}

// valid reports a path that can be walked: absolute, clean, no NUL.
func valid(p change.Path) bool {
	s := string(p)
	return strings.HasPrefix(s, "/") && path.Clean(s) == s && !strings.ContainsRune(s, 0)
}
