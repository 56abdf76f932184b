package linuxns

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// everything gives files what attributes, links and holes a host has. The
// capability of nsroot is one of a user namespace whose root is 100000.
const everything = `
	for f in cap acl user all plain two nsroot setuid; do echo $f > $f; done
	setcap cap_net_raw+ep cap; setcap cap_net_bind_service+ei all; setcap -n 100000 cap_net_raw+ep nsroot
	setfacl -m u:1234:rw,g:56:r acl; setfacl -m u:1234:r all
	setfattr -n user.k -v v user; setfattr -n user.k -v v all; setfattr -n trusted.k -v w all
	chown 33:44 all; setcap cap_net_bind_service+ei all; chmod 4755 setuid
	ln two two.too
	mkdir dir; setfacl -m u:1234:rwx dir; setfacl -d -m u:1234:rx dir; setfattr -n user.d -v v dir; chmod 2775 dir
	mkfifo -m 640 fifo
	truncate -s 8M sparse; printf x | dd of=sparse bs=1 seek=4000000 conv=notrunc status=none
	ln -s nowhere link`

// edits change something of each.
const edits = `
	setcap cap_net_admin+ep plain; setcap cap_sys_time+ep cap; echo more >> all; setfacl -m u:77:rw,g:88:rwx user
	setfacl -x u:1234 acl; setfacl -d -m g:99:rx dir; echo new > dir/inherits; (umask 077; mkdir dir/below; echo x > dir/below/f)
	setfattr -n user.n -v w two; setfattr -x user.k user; ln two two.three
	mkfifo -m 600 p; rm fifo; mkdir fifo; rm setuid; mkfifo setuid
	echo c > newcap; setcap cap_net_raw,cap_chown+eip newcap; chown 1000:1000 newcap; setcap cap_net_raw+ep newcap
	truncate -s 16M sparse; truncate -s 1M hole; rm link; ln -s other link; setcap -n 100000 cap_chown+ep dir/inherits`

func inHost(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", "umask 022; "+script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// A copy into the layer that changed nothing is no change, whatever the file
// carries: bytes and ids come through the mapping of a view unharmed.
func TestCopiesOfEveryKindAreNoChange(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setcap"), nstest.Tool("setfacl"), nstest.Tool("setfattr"))
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			dir := base(t)
			inHost(t, dir, everything)
			e := newEnv(t, func(s *backends.Spec) { s.Base, s.Mode = dir, mode })
			e.must("sh", "-euc", "cd "+dir+`; for f in cap acl user all plain two nsroot setuid sparse; do : >> $f; done
				chmod 2775 dir; chmod 640 fifo; chown -h 0:0 link; touch -h *`)
			var st unix.Stat_t
			for _, name := range []string{"all", "dir", "fifo", "link", "nsroot", "sparse"} {
				if err := unix.Lstat(e.upper(filepath.Join(dir, name)), &st); err != nil {
					t.Fatalf("%s was not copied: %v", name, err)
				}
			}
			if d := differenceText(t, e, dir); d != "" {
				t.Errorf("difference:\n%s", d)
			}
		})
	}
}

// What commands do inside is, byte for byte, what they would have done outside.
func TestChangesOfEveryKindAreWhatTheHostWouldHave(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setcap"), nstest.Tool("setfacl"), nstest.Tool("setfattr"))
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			dir, outside := base(t), base(t)
			inHost(t, dir, everything)
			inHost(t, outside, everything+edits)
			e := newEnv(t, func(s *backends.Spec) { s.Base, s.Mode = dir, mode })
			e.must("sh", "-euc", "umask 022; cd "+dir+edits)
			d, err := e.view().Changes(t.Context())
			if err != nil || len(d.Blockers) > 0 {
				t.Fatalf("blockers %+v, %v", d.Blockers, err)
			}
			seen := map[string]bool{}
			for _, c := range d.Changes {
				name := strings.TrimPrefix(string(c.Path), dir)
				seen[name] = true
				if c.New == nil {
					t.Errorf("%s was deleted", name)
					continue
				}
				if diff := cmp.Diff(outsideEntry(t, outside+name), wantedEntry(c.New)); diff != "" {
					t.Errorf("%s (-outside +inside):\n%s", name, diff)
				}
			}
			for _, name := range []string{"/plain", "/cap", "/all", "/user", "/acl", "/dir", "/dir/inherits", "/dir/below", "/dir/below/f", "/two", "/two.three", "/p", "/fifo", "/setuid", "/newcap", "/sparse", "/hole", "/link"} {
				if !seen[name] {
					t.Errorf("%s is no change", name)
				}
			}
		})
	}
}

// wantedEntry is what is compared: neither content nor time.
func wantedEntry(e *change.Entry) change.Entry {
	return change.Entry{Type: e.Type, Mode: e.Mode, UID: e.UID, GID: e.GID, Xattrs: e.Xattrs, Size: e.Size, Sparse: e.Sparse, Target: e.Target}
}

func outsideEntry(t *testing.T, path string) change.Entry {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	attrs, err := xattr.Planned(int(parent.Fd()), filepath.Base(path))
	if err != nil {
		t.Fatal(err)
	}
	e := change.Entry{Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, Xattrs: attrs}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Type, e.Size, e.Sparse = change.Regular, st.Size, st.Blocks*512 < st.Size
	case unix.S_IFDIR:
		e.Type = change.Directory
	case unix.S_IFIFO:
		e.Type = change.Fifo
	case unix.S_IFLNK:
		b := make([]byte, 64)
		n, err := unix.Readlink(path, b)
		if err != nil {
			t.Fatal(err)
		}
		e.Type, e.Target = change.Symlink, change.Path(b[:n])
	}
	return e
}

// differenceText is one line for everything that a view has and the host has not.
func differenceText(t *testing.T, e *env, dir string) string {
	t.Helper()
	d, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range slices.Concat(d.Changes, d.Ephemeral) {
		lines = append(lines, strings.Join(append([]string{string(c.Op), strings.TrimPrefix(string(c.Path), dir)}, c.Commands()...), " "))
	}
	for _, b := range d.Blockers {
		lines = append(lines, "blocked "+b.What+" "+strings.TrimPrefix(b.Subject, dir)+" "+b.Reason)
	}
	return strings.Join(lines, "\n")
}
