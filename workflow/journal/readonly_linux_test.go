package journal

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// refusal runs a child that must fail, and returns what it says.
func refusal(t *testing.T, dir string, cred *syscall.Credential) string {
	t.Helper()
	cmd := child(t, "open", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	cmd.Path = "/proc/self/exe" // the test binary's own directory is closed to others
	cmd.Stderr = nil
	said, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("the journal was opened")
	}
	return string(said)
}

func TestReadOnlyFilesystem(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	p := place{t, t.TempDir()}
	p.ours()
	empty := place{t, t.TempDir()}
	for _, dir := range []string{p.dir, empty.dir} {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}
	for name, dir := range map[string]string{"a journal": p.dir, "none yet": empty.dir} {
		if said := refusal(t, dir, nil); !strings.Contains(said, ErrReadOnly.Error()) {
			t.Errorf("%s: %q does not say that it is read-only", name, said)
		}
	}
	// Reading needs no index file beside the database.
	if said, err := child(t, "read", p.dir).Output(); err != nil {
		t.Errorf("reading: %v %s", err, said)
	}
}

func TestJournalOfAnotherUser(t *testing.T) {
	nstest.Require(t, nstest.Root)
	p := place{t, t.TempDir()}
	p.ours()
	if err := os.Chmod(p.path(), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := p.dir; dir != os.TempDir() && dir != "/"; dir = dir[:strings.LastIndexByte(dir, '/')] {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before := digestDir(t, p.dir)
	said := refusal(t, p.dir, &syscall.Credential{Uid: 65534, Gid: 65534})
	if !strings.Contains(said, ErrReadOnly.Error()) {
		t.Errorf("%q does not say that it is read-only", said)
	}
	if digestDir(t, p.dir) != before {
		t.Error("the refused journal was changed")
	}
}
