package builder

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// shim stands in for the clients of daemons that are not in a view. Left alone
// they fail in many ways, and some with status 0: better one line that says why.
const shim = `#!/bin/sh
echo "netsandbox: ${0##*/}: services are not available in this view: its daemon runs on the host, out of reach; change its files here and start the program itself to try them" >&2
exit 1
`

var (
	shimmed = []string{
		"systemctl", "service", "nmcli", "nmtui", "resolvectl", "systemd-resolve",
		"networkctl", "hostnamectl", "timedatectl", "localectl", "loginctl", "machinectl",
		"busctl", "dbus-send", "gdbus", "firewall-cmd", "docker",
	}
	shimDirs = []string{"usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin"}
)

// shims binds it over each client that the view has. A bind leaves nothing in
// the upper. A symlink is left alone, because its target may be a program with
// other names too.
func (b *build) shims() error {
	src := -1
	for _, d := range shimDirs {
		dir, err := mounts.Place(b.root, d, false)
		if err != nil {
			continue // absent, or a symlink to one of the others
		}
		for _, name := range shimmed {
			place, err := mounts.Place(dir, name, true)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
				continue
			}
			if err != nil {
				unix.Close(dir)
				return err
			}
			if src < 0 {
				if src, err = b.shimFile(); err != nil {
					unix.Close(place)
					unix.Close(dir)
					return err
				}
				defer unix.Close(src)
			}
			if err := b.bindShim(src, place); err != nil {
				unix.Close(dir)
				return err
			}
		}
		unix.Close(dir)
	}
	return nil
}

func (b *build) bindShim(src, place int) error {
	defer unix.Close(place)
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	t, err := mounts.Clone(src, "", false)
	if err != nil {
		return err
	}
	if err := mounts.Set(t, unix.MOUNT_ATTR_RDONLY); err != nil {
		unix.Close(t)
		return err
	}
	return mounts.Attach(t, place)
}

// shimFile returns the shim's file, attached in scratch to be cloned.
func (b *build) shimFile() (int, error) {
	t, err := mounts.Tmpfs(unix.MOUNT_ATTR_NODEV, b.Mode.Shift, "755", "size=64k")
	if err != nil {
		return -1, err
	}
	if err := b.write(t, "shim", []byte(shim), 0o755); err != nil {
		unix.Close(t)
		return -1, err
	}
	if err := unix.Mkdirat(b.scratch, "shim", 0o755); err != nil {
		unix.Close(t)
		return -1, err
	}
	if err := b.attachScratch(t, "shim"); err != nil {
		return -1, err
	}
	return mounts.Place(b.scratch, "shim/shim", false)
}
