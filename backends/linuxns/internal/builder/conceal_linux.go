package builder

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/conceal"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// conceal finds what the view hides and remembers what it shows without its
// secrets.
func (b *build) conceal() []string {
	f := conceal.Find(b.Hide, b.Secrets, b.table)
	b.redacted = map[string]bool{}
	for _, c := range f.Covers {
		b.redacted[c.Path] = c.How == backends.Redacted
	}
	b.view.Notes = append(b.view.Notes, f.Notes...)
	return f.Paths()
}

// hiddenAt returns a detached mount to put over a file. A second name of what is
// redacted is hidden whole, and so is what cannot be read or is too big.
func (b *build) hiddenAt(at string) (int, error) {
	if !b.redacted[at] {
		return b.hiddenFile()
	}
	content, st, err := conceal.Content(at)
	if err != nil || max(st.Uid, st.Gid) >= harden.Shift-1 { // the first id that no view has
		return b.hiddenFile()
	}
	room := strconv.Itoa((len(content)>>12 + 3) << 12) // whole pages
	t, err := mounts.Tmpfs(unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, 0, "000", "size="+room)
	if err != nil {
		return -1, err
	}
	defer unix.Close(t)
	if err := b.write(t, "redacted", content, st.Mode&0o7777); err != nil {
		return -1, err
	}
	uid, gid := b.Mode.Shift+int(st.Uid), b.Mode.Shift+int(st.Gid)
	if err := unix.Fchownat(t, "redacted", uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, fmt.Errorf("set owner of %s: %w", at, err)
	}
	return b.fileOf(t, "redacted", unix.MOUNT_ATTR_RDONLY)
}
