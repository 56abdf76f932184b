package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// dresses are ways in which a directory can be, in place.
var dresses = map[string]func(m *maker, seed byte){
	"plain":  func(m *maker, _ byte) { m.mkdir("d", 0o750) },
	"sticky": func(m *maker, _ byte) { m.mkdir("d", 0o1777) },
	"owned": func(m *maker, _ byte) {
		m.mkdir("d", 0o2755)
		m.ok(os.Lchown(m.at("d"), 3, 4), unix.Chmod(m.at("d"), 0o2700))
	},
	"listed":      func(m *maker, seed byte) { m.mkdir("d", 0o700); m.set("d", xattr.ACL, acl(seed)) },
	"default":     func(m *maker, seed byte) { m.mkdir("d", 0o755); m.set("d", xattr.DefaultACL, acl(seed)) },
	"noted":       func(m *maker, seed byte) { m.mkdir("d", 0o755); m.set("d", "user.note", []byte{seed}) },
	"all of that": func(m *maker, seed byte) { dressAll(m, seed) },
}

func dressAll(m *maker, seed byte) {
	m.mkdir("d", 0o700)
	m.ok(os.Lchown(m.at("d"), int(seed), 5), unix.Chmod(m.at("d"), 0o3700))
	m.set("d", xattr.ACL, acl(seed))
	m.set("d", xattr.DefaultACL, acl(seed+1))
	m.set("d", "user.note", []byte{seed})
	m.set("d", "trusted.note", nil)
}

// bystander is a name that no plan of a model changes.
const bystander = "in it"

func newDressed(t *testing.T, disk, have, want string) *model {
	for _, name := range []string{have, want} {
		kinds["dress "+name] = func(m *maker, seed byte) {
			dresses[name](m, seed)
			m.file("d/"+bystander, "stays")
		}
		defer delete(kinds, "dress "+name)
	}
	return newModel(t, disk, "dress "+have, "dress "+want)
}

// A directory is changed in several calls. Killed between any two of them, and
// again at any point of the undo, it is as before to the last attribute.
func TestDirectoryInPlaceAtEveryPoint(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	disk := newDisk(t, loopfs.Ext4)
	points := 0
	for _, have := range slices.Sorted(maps.Keys(dresses)) {
		for _, want := range slices.Sorted(maps.Keys(dresses)) {
			if have == want && have != "all of that" {
				continue
			}
			m := newDressed(t, disk, have, want)
			before := m.picture(true)
			steps := m.staged("apply-1")
			m.ok(m.host.Swap(context.Background(), steps))
			left, err := m.host.Verify(context.Background(), steps)
			m.ok(err)
			if len(left) > 0 {
				t.Fatalf("%s: not as wanted: %+v", m.name, left)
			}
			for n := 0; ; n++ {
				died := m.diesInPlace(steps, n)
				m.equal(fmt.Sprintf("host after dying at point %d", n), before, m.picture(true))
				if !died {
					break
				}
				points++
			}
		}
	}
	t.Logf("killed at %d points", points)
}

// diesInPlace has the swap die at point n, the undo too, and undoes.
func (m *model) diesInPlace(steps []backends.Step, n int) bool {
	m.t.Helper()
	ctx := context.Background()
	m.back(steps)
	one, err := dying(n, func() error { return m.host.Swap(ctx, steps) })
	m.ok(err)
	two, err := dying(n, func() error { _, err := m.host.Undo(ctx, steps); return err })
	m.ok(err)
	m.back(steps)
	return one || two
}

// What somebody else sets on such a directory meanwhile is theirs: nothing of it
// is taken back, and the way back by hand works.
func TestDirectoryInPlaceIsSomebodysMeanwhile(t *testing.T) {
	for name, upset := range map[string]func(m *maker){
		"another attribute": func(m *maker) { m.set("d", "user.theirs", []byte("t")) },
		"another value":     func(m *maker) { m.set("d", "user.note", []byte("theirs")) },
		"another list":      func(m *maker) { m.set("d", xattr.ACL, acl('z')) },
		"no default list":   func(m *maker) { m.ok(unix.Lremovexattr(m.at("d"), xattr.DefaultACL)) },
		"a third mode":      func(m *maker) { m.ok(unix.Chmod(m.at("d"), 0o711)) },
	} {
		t.Run(name, func(t *testing.T) {
			nstest.NewMount(t, nstest.Root, nstest.Tool("setfattr"))
			m := newDressed(t, newDisk(t, "tmpfs"), "all of that", "all of that")
			before := m.picture(true)
			steps := m.staged("apply-1")
			m.ok(m.host.Swap(t.Context(), steps))
			upset(&maker{t, m.path("etc/x")})
			theirs := m.picture(true)
			left, err := m.host.Undo(t.Context(), steps)
			m.ok(err)
			if len(left) != 1 || left[0].Subject != "/etc/x/d" {
				t.Fatalf("leftovers %s", sprint(left))
			}
			m.equal("what is theirs", theirs, m.picture(true))
			fix := strings.ReplaceAll(left[0].Fix, "/etc/x/d", m.path("etc/x/d"))
			if out, err := exec.Command("sh", "-c", fix).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", fix, err, out)
			}
			m.back(steps)
			m.equal("host after "+fix, before, m.picture(true))
		})
	}
}

// The same between snapshot and swap.
func TestDirectoryInPlaceChangedBeforeTheSwap(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	m := newDressed(t, newDisk(t, "tmpfs"), "noted", "listed")
	steps := m.staged("apply-1")
	m.ok(unix.Lsetxattr(m.path("etc/x/d"), "user.theirs", nil, 0))
	theirs := m.picture(true)
	if err := m.host.Swap(t.Context(), steps); !errors.Is(err, backends.ErrHostChanged) {
		t.Errorf("swap: %v", err)
	}
	m.equal("host", theirs, m.picture(true))
}

// A directory of the host says by its default ACL what is made in it; that holds
// for nothing that a plan makes there.
func TestDefaultListOfAParentAddsNothing(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	m := newModel(t, newDisk(t, loopfs.Ext4), "full directory", "full directory")
	for _, d := range []string{m.dir, m.path("etc"), m.path("etc/x"), m.want} {
		m.ok(unix.Lsetxattr(d, xattr.DefaultACL, acl('q'), 0))
	}
	before := m.picture(true)
	steps := m.staged("apply-1")
	m.applied(steps)
	m.back(steps)
	m.equal("host after undo", before, m.picture(true))
}

// A label is that of the object which is replaced, or of the directory; never the
// view's. What else one filesystem knows of a file stays with its name.
func TestLabelsComeFromThePlace(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := fixtureAt(t, newDisk(t, loopfs.Btrfs))
	f.put("etc/a", "file:old")
	f.put("etc/b", "dir")
	label := func(p, value string) { f.ok(unix.Lsetxattr(f.path(p), xattr.SELinux, []byte(value), 0)) }
	label("etc", "of the directory")
	label("etc/a", "of the file")
	label("etc/b", "of what another type replaces")
	f.ok(unix.Lsetxattr(f.path("etc/a"), "btrfs.compression", []byte("zstd"), 0))
	f.ok(unix.Lsetxattr(f.path("etc/a"), "security.ima", []byte{1, 2}, 0))
	steps := f.swap([]change.Change{
		f.change("/etc/a", "file:new"), f.change("/etc/b", "file:b"), f.change("/etc/l", "link:a"),
		f.change("/etc/n", "dir"), f.change("/etc/n/f", "file:f"), f.change("/etc/p", "fifo"),
	})
	for p, want := range map[string]string{
		"a": "of the file", "b": "of the directory", "l": "of the directory",
		"n": "of the directory", "n/f": "of the directory", "p": "of the directory",
	} {
		if got := f.xattrs("etc/" + p); string(got[xattr.SELinux]) != want {
			t.Errorf("%s is labelled %q, want %q", p, got[xattr.SELinux], want)
		}
	}
	got := f.xattrs("etc/a")
	if string(got["btrfs.compression"]) != "zstd" {
		t.Errorf("compression %q", got["btrfs.compression"])
	}
	if v, ok := got["security.ima"]; ok {
		t.Errorf("the signature of the old content is on the new: %q", v)
	}
	f.back(steps)
}
