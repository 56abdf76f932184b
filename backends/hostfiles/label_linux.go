package hostfiles

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// Labelled implements [backends.Labeller]: a labelled filesystem has a label on
// every object, so one look at the base tells.
func (h *Host) Labelled() bool {
	dir, err := os.Open(filepath.Join(h.root, string(h.base)))
	if err != nil {
		return false
	}
	defer dir.Close()
	for _, label := range []string{xattr.SELinux, "security.SMACK64"} {
		if _, err := unix.Fgetxattr(int(dir.Fd()), label, nil); err == nil {
			return true
		}
	}
	return false
}

var _ backends.Labeller = (*Host)(nil)
