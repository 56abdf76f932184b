package hostfiles

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// What a filesystem cannot hold is named before anything is touched, and what it
// can is not.
func TestPreflightKnowsWhatIsHeld(t *testing.T) {
	big := bytes.Repeat([]byte("v"), 6000)
	for name, c := range map[string]struct {
		disk  loopfs.Kind
		o     loopfs.Options
		attrs map[string][]byte
		block string // part of the reason; empty for none
	}{
		"all kinds on ext4":  {loopfs.Ext4, loopfs.Options{}, map[string][]byte{xattr.ACL: acl('a'), xattr.Capability: capability(0), "user.k": nil, "trusted.k": {1}}, ""},
		"all kinds on tmpfs": {"tmpfs", loopfs.Options{}, map[string][]byte{xattr.ACL: acl('a'), xattr.Capability: capability(0), "user.k": nil, "trusted.k": {1}}, ""},
		"no ACLs":            {loopfs.Btrfs, loopfs.Options{Data: "noacl"}, map[string][]byte{xattr.ACL: acl('a')}, "no ACLs"},
		"a default ACL":      {loopfs.Btrfs, loopfs.Options{Data: "noacl"}, map[string][]byte{xattr.DefaultACL: acl('a')}, "no ACLs"},
		"an unknown kind":    {loopfs.Ext4, loopfs.Options{}, map[string][]byte{"alien.k": nil}, "alien.k"},
		"too big for ext4":   {loopfs.Ext4, loopfs.Options{}, map[string][]byte{"user.k": big}, "cannot hold its extended attributes"},
		"big enough ext4":    {loopfs.Ext4, loopfs.Options{Mkfs: []string{"-O", "ea_inode"}}, map[string][]byte{"user.k": big}, ""},
		"xfs takes it":       {loopfs.XFS, loopfs.Options{}, map[string][]byte{"user.k": big}, ""},
		"btrfs takes it":     {loopfs.Btrfs, loopfs.Options{}, map[string][]byte{"user.k": big}, ""},
		"too big for btrfs":  {loopfs.Btrfs, loopfs.Options{}, map[string][]byte{"user.k": bytes.Repeat(big, 5)}, "cannot hold its extended attributes"},
	} {
		t.Run(name, func(t *testing.T) {
			nstest.NewMount(t, nstest.Root)
			f := fixtureAt(t, newDisk(t, c.disk, c.o))
			f.put("etc/a", "file:old")
			f.put("etc/d", "dir")
			f.age()
			before := f.manifest()
			kind := "file:new"
			if c.attrs[xattr.DefaultACL] != nil {
				kind = "dir"
			}
			for _, p := range []string{"/etc/a", "/etc/new", "/etc/d"} {
				if p == "/etc/d" {
					kind = "dir"
				}
				ch := f.change(p, kind)
				if p == "/etc/d" && c.attrs[xattr.Capability] != nil {
					continue // not a directory's
				}
				ch.New.Xattrs = c.attrs
				got, err := f.host.Preflight(t.Context(), []change.Change{ch})
				f.ok(err)
				switch {
				case c.block == "" && len(got) > 0:
					t.Errorf("%s: blockers %+v", p, got)
				case c.block != "" && (len(got) != 1 || got[0].What != "xattr" || got[0].Subject != p || !strings.Contains(got[0].Reason, c.block)):
					t.Errorf("%s: blockers %+v, want %q", p, got, c.block)
				}
				if c.block == "" {
					f.back(f.swap([]change.Change{ch}))
				}
			}
			f.same("host", before, f.manifest())
		})
	}
}

// Records of the second copy have a limit of their own.
func TestMoreAttributesThanTheSecondCopyHolds(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := fixtureAt(t, newDisk(t, loopfs.XFS))
	f.put("etc/a", "file:old")
	for i := range 20 {
		f.ok(unix.Setxattr(f.path("etc/a"), "user."+strings.Repeat("n", i+1), bytes.Repeat([]byte{byte(i)}, 60<<10), 0))
	}
	got, err := f.host.Preflight(t.Context(), []change.Change{f.change("/etc/a", "none")})
	f.ok(err)
	if len(got) != 1 || got[0].What != "xattr" {
		t.Errorf("blockers %+v", got)
	}
	for i := 16; i <= 20; i++ {
		f.ok(unix.Removexattr(f.path("etc/a"), "user."+strings.Repeat("n", i)))
	}
	f.age()
	before := &model{fixture: f}
	was := before.picture(false)
	steps, second := f.stage([]change.Change{f.change("/etc/a", "none")}), filepath.Join(t.TempDir(), "second")
	f.ok(f.archive(steps, second), f.host.Swap(t.Context(), steps), f.host.Clean(t.Context(), steps, false))
	steps, err = f.host.Restore(t.Context(), steps, second)
	f.ok(err)
	f.back(steps)
	before.equal("host after a late undo", was, before.picture(false))
}

// Holes need no room: what a sparse file holds counts, not what it says.
func TestSpaceIsForDataOnly(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := newFixture(t)
	f.put("small", "dir")
	f.ok(unix.Mount("tmpfs", f.path("small"), "tmpfs", 0, "size=1m"))
	c := f.change("/small/disk", "file:")
	c.New.Size, c.New.Sparse = 1<<40, true
	for allocated, want := range map[int64]int{0: 0, 64 << 10: 0, 2 << 20: 1} {
		c.New.Allocated = allocated
		got, err := f.host.Preflight(t.Context(), []change.Change{c})
		f.ok(err)
		if len(got) != want {
			t.Errorf("%d bytes of data: blockers %+v", allocated, got)
		}
	}
	cs := f.names(strings.Repeat("x", 600<<10), "/small/one", "/small/two")
	got, err := f.host.Preflight(t.Context(), cs)
	f.ok(err)
	if len(got) > 0 {
		t.Errorf("a second name was counted: %+v", got)
	}
}

// A directory on a read-only mount is not changed in place either.
func TestReadOnlyDirectoryInPlace(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := newFixture(t)
	f.put("ro/d", "dir")
	f.ok(unix.Mount(f.path("ro"), f.path("ro"), "", unix.MS_BIND, ""), unix.Mount("", f.path("ro"), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	got, err := f.host.Preflight(t.Context(), []change.Change{f.change("/ro/d", "dir")})
	f.ok(err)
	if len(got) != 1 || got[0].What != "read-only" {
		t.Errorf("blockers %+v", got)
	}
}

// An active fifo changes its time with every write. That is nobody's edit: it can
// be taken away, and comes back, with its ends still connected.
func TestFifoInUse(t *testing.T) {
	f := newFixture(t)
	f.put("run/p", "fifo")
	f.put("run/q", "fifo")
	f.age()
	end, err := os.OpenFile(f.path("run/p"), os.O_RDWR, 0)
	f.ok(err)
	defer end.Close()
	write := func() {
		_, err := end.WriteString("x")
		f.ok(err)
	}
	ino, _ := f.inode("run/p")
	steps := f.stage([]change.Change{f.change("/run/p", "fifo"), f.change("/run/q", "file:q"), f.change("/run/r", "fifo")})
	write()
	f.ok(f.host.Swap(t.Context(), steps))
	write()
	ours, err := os.OpenFile(f.path("run/p"), os.O_RDWR, 0)
	f.ok(err)
	defer ours.Close()
	_, err = ours.WriteString("into ours")
	f.ok(err)
	f.back(steps)
	if now, _ := f.inode("run/p"); now != ino {
		t.Errorf("inode %d, was %d", now, ino)
	}
	buf := make([]byte, 8)
	if n, err := end.Read(buf); err != nil || string(buf[:n]) != "xx" {
		t.Errorf("read %q, %v", buf[:n], err)
	}
	if _, err := os.Lstat(f.path("run/r")); !os.IsNotExist(err) {
		t.Errorf("run/r: %v", err)
	}
}
