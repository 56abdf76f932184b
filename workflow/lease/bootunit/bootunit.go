// Package bootunit knows the unit that undoes, at boot, a trial that a reboot
// or a power cut interrupted.
//
// It renders texts, names paths and looks; it writes nothing. Installing the
// unit is a file change of a plan like any other, shown and undone like any
// other.
package bootunit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Name is the unit's name.
const Name = "netsandbox-recover.service"

// Where units of the administrator live, and what pulls ours in at boot.
const (
	dir     = "/etc/systemd/system"
	wantDir = dir + "/sysinit.target.wants"
)

// Path is where the unit belongs.
const Path = dir + "/" + Name

// Link is the symbolic link that enables it; it points to [Path].
const Link = wantDir + "/" + Name

// ErrNoManager is why a unit would be of no use.
var ErrNoManager = errors.New("systemd is not the service manager of this machine")

// Unit is what one installation runs at boot.
type Unit struct {
	Exe      string // absolute path of the program
	StateDir string // absolute path of the state directory
}

// Text renders the unit.
//
// It is ordered before the network and before everything that reads a
// configuration, so that no service starts from a file that is about to be
// undone; and after the filesystems that hold the program, the state and the
// targets. Without default dependencies, because those would order it after what
// it has to precede. A boot is not held up for long by it, and a failed undo is
// a failed unit.
func (u Unit) Text() (string, error) {
	if strings.ContainsAny(u.Exe, "\"'\\") { // systemd takes no such program name, however it is quoted
		return "", fmt.Errorf("render %s: %q cannot be named in a unit", Name, u.Exe)
	}
	for _, p := range []string{u.Exe, u.StateDir} {
		if !filepath.IsAbs(p) || strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("render %s: %q cannot be named in a unit", Name, p)
		}
	}
	return fmt.Sprintf(`# Written by netsandbox. Undoes a trial that was interrupted by a reboot.
[Unit]
Description=Undo network trials interrupted by a reboot
Documentation=man:netsandbox-recover(1)
DefaultDependencies=no
RequiresMountsFor=%[1]s %[2]s
After=local-fs.target systemd-remount-fs.service
Before=sysinit.target network-pre.target shutdown.target
Wants=network-pre.target
Conflicts=shutdown.target
ConditionPathIsDirectory=%[3]s

[Service]
Type=oneshot
ExecStart=%[4]s recover --state-dir %[5]s
TimeoutStartSec=2min

[Install]
WantedBy=sysinit.target
`, quote(u.StateDir), quote(filepath.Dir(u.Exe)), specifiers(u.StateDir), quote(u.Exe), argument(u.StateDir)), nil
}

// Installed reports whether the unit, exactly as [Unit.Text] renders it, is in
// place and enabled below root, which is "/" for this machine.
func (u Unit) Installed(root string) (bool, error) {
	want, err := u.Text()
	if err != nil {
		return false, err
	}
	have, err := os.ReadFile(filepath.Join(root, Path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read unit: %w", err)
	}
	target, err := os.Readlink(filepath.Join(root, Link))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read unit: %w", err)
	}
	return string(have) == want && (target == Path || target == "../"+Name), nil
}

// Present returns nil when a service manager will run the unit at boot, else why
// not. As sd_booted(3) does, it asks whether systemd runs, not whether its files
// are there.
func Present() error {
	st, err := os.Lstat("/run/systemd/system")
	if err != nil || !st.IsDir() {
		return ErrNoManager
	}
	return nil
}

// specifiers keeps systemd from expanding percent signs.
func specifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// quote writes a path as one word of a unit file, systemd.syntax(7).
func quote(s string) string {
	s = specifiers(s)
	if !strings.ContainsAny(s, " \"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// argument is quote for an argument of ExecStart, where a dollar sign would
// begin a variable. In the program's own name it would not.
func argument(s string) string { return strings.ReplaceAll(quote(s), "$", "$$") }
