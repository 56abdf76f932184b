package builder

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/conceal"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
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
		return b.cloak(hiddenFile)
	}
	content, st, err := conceal.Content(at)
	if err != nil || max(st.Uid, st.Gid) >= harden.Shift-1 { // the first id that no view has
		return b.cloak(hiddenFile)
	}
	if err := b.cloaks(); err != nil {
		return -1, err
	}
	name := "redacted-" + mountplan.Key(at)
	if err := b.write(b.scratch, cloakDir+"/"+name, content, st.Mode&0o7777); err != nil {
		return -1, err
	}
	uid, gid := b.Mode.Shift+int(st.Uid), b.Mode.Shift+int(st.Gid)
	if err := unix.Fchownat(b.scratch, cloakDir+"/"+name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, fmt.Errorf("set owner of %s: %w", at, err)
	}
	return b.cloak(name)
}

// What covers are clones of, in one filesystem in scratch: a filesystem for each
// costs several times as much, and a host has many secrets.
const (
	cloakDir   = "c"
	hiddenFile = "file"
	hiddenDir  = "dir"
)

// cloak returns a detached mount of a part of that filesystem.
func (b *build) cloak(name string) (int, error) {
	if err := b.cloaks(); err != nil {
		return -1, err
	}
	t, err := mounts.Clone(b.scratch, cloakDir+"/"+name, false)
	if err != nil {
		return -1, err
	}
	if err := mounts.Set(t, unix.MOUNT_ATTR_RDONLY); err != nil {
		unix.Close(t)
		return -1, err
	}
	return t, nil
}

// cloaks makes the filesystem when it is first needed. What is in it belongs to
// the host's root, whom no shifted view knows.
func (b *build) cloaks() error {
	err := unix.Mkdirat(b.scratch, cloakDir, 0o700)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make place for covers: %w", err)
	}
	t, err := mounts.Tmpfs(unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, 0, "700", "size=64m")
	if err != nil {
		return err
	}
	err = unix.Mkdirat(t, hiddenDir, 0)
	if err == nil {
		err = unix.Mknodat(t, hiddenFile, unix.S_IFREG, 0)
	}
	if err != nil {
		unix.Close(t)
		return fmt.Errorf("make covers: %w", err)
	}
	return b.attachScratch(t, cloakDir)
}
