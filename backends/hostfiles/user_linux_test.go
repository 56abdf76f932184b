package hostfiles

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// userEnv names the directory in which TestOrdinaryUser, run again as nobody,
// finds its host.
const userEnv = "NETSANDBOX_HOSTFILES_USER_DIR"

// An owner without privilege applies and takes back changes below a directory of
// their own, and is told beforehand what only root could do.
func TestOrdinaryUser(t *testing.T) {
	if dir := os.Getenv(userEnv); dir != "" {
		asOrdinaryUser(t, dir)
		return
	}
	nstest.Require(t, nstest.Root)
	const nobody = 65534
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	// By its magic link: the way to the binary is closed to nobody.
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestOrdinaryUser$")
	cmd.Dir, cmd.Env = "/", []string{userEnv + "=" + dir, "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
}

func asOrdinaryUser(t *testing.T, dir string) {
	f := fixtureAt(t, filepath.Join(dir, "host"))
	f.put("conf/a", "file:old")
	f.put("conf/tree/b", "file:b")
	f.put("shared", "dir")
	f.ok(os.Chmod(f.path("shared"), 0o777)) // anybody could rename what we hide here
	f.age()
	before := f.manifest()

	steps := f.swap([]change.Change{
		f.change("/conf/a", "file:new"), f.change("/shared/x", "file:x"),
		f.change("/conf/tree", "none"), f.change("/conf/tree/b", "none"), f.change("/conf/dir", "dir"), f.change("/conf/dir/c", "file:c"),
	})
	for _, s := range steps {
		if d, _ := split(s.Place.Dir); d != "/" {
			t.Errorf("%s is staged in %s", s.Change.Path, d)
		}
	}
	f.back(steps)
	f.same("host after undo", before, f.manifest())

	toRoot, unreadable := f.change("/conf/a", "file:new"), f.change("/conf/a", "file:new")
	toRoot.New.UID, unreadable.New.Mode = 0, 0o200
	refused(f, "/conf/a", toRoot)
	refused(f, "/conf/a", unreadable)
	c := f.change("/conf/a", "file:new")
	f.ok(os.Chmod(f.path("conf/a"), 0))
	refused(f, "/conf/a", c)
	f.ok(os.Chmod(f.path("conf/a"), 0o640))
	f.ok(os.Chmod(f.path("conf"), 0o555))
	refused(f, "/conf", c)
	f.ok(os.Chmod(f.path("conf"), 0o755))
}

// refused wants one change to be blocked for lack of permission.
func refused(f *fixture, subject string, c change.Change) {
	f.t.Helper()
	got, err := f.host.Preflight(context.Background(), []change.Change{c})
	f.ok(err)
	if len(got) != 1 || got[0].What != "permission" || got[0].Subject != subject {
		f.t.Errorf("blockers %+v, want one permission of %s", got, subject)
	}
}
