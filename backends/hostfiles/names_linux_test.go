package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// inode returns the number and the link count of what is at p.
func (f *fixture) inode(p string) (ino, links uint64) {
	f.t.Helper()
	n, err := stat(unix.AT_FDCWD, f.path(p))
	f.ok(err)
	return n.ino, n.nlink
}

// one wants all names to be one file, of exactly so many names.
func (f *fixture) one(links uint64, names ...string) {
	f.t.Helper()
	first, _ := f.inode(names[0])
	for _, p := range names {
		if ino, n := f.inode(p); ino != first || n != links {
			f.t.Errorf("%s is inode %d with %d names, want %d with %d", p, ino, n, first, links)
		}
	}
}

// names makes the changes that turn each path into a name of one file.
func (f *fixture) names(content string, paths ...string) []change.Change {
	f.t.Helper()
	var cs []change.Change
	for i, p := range paths {
		c := f.change(p, "file:"+content)
		if i > 0 {
			c.New.Link = change.Path(paths[0])
		}
		cs = append(cs, c)
	}
	return cs
}

// A wanted file has names beside things of every sort: in a directory that is
// made with it, in two, over a file, over a symlink, over one name of another
// group. It is one inode with just these names, and every one of them goes back.
func TestNamesOfOneFile(t *testing.T) {
	for _, disk := range []loopfs.Kind{loopfs.Ext4, loopfs.XFS, loopfs.Btrfs, "tmpfs"} {
		t.Run(string(disk), func(t *testing.T) {
			nstest.NewMount(t, nstest.Root)
			m := &model{fixture: fixtureAt(t, newDisk(t, disk))}
			m.put("etc/file", "file:old")
			m.put("etc/link", "link:file")
			m.put("etc/b/one", "file:two names")
			m.ok(os.Link(m.path("etc/b/one"), m.path("etc/b/two")))
			m.age()
			before := m.picture(true)
			cs := m.names("new", "/etc/a", "/etc/b/one", "/etc/file", "/etc/link", "/etc/made/in", "/etc/z/deep/in")
			cs = append(cs, m.change("/etc/made", "dir"), m.change("/etc/z", "dir"), m.change("/etc/z/deep", "dir"))
			for n := 0; ; n++ {
				steps := m.stageAs(fmt.Sprint("apply-", n), cs)
				died, err := dying(n, func() error { return m.host.Swap(t.Context(), steps) })
				m.ok(err)
				if !died {
					m.one(6, "etc/a", "etc/b/one", "etc/file", "etc/link", "etc/made/in", "etc/z/deep/in")
					m.one(2, "etc/b/two", string(backup(steps[indexOf(steps, "/etc/b/one")])))
					left, err := m.host.Verify(t.Context(), steps)
					m.ok(err)
					if len(left) > 0 {
						t.Errorf("not as wanted: %s", sprint(left))
					}
				}
				again, err := dying(n, func() error { _, err := m.host.Undo(t.Context(), steps); return err })
				m.ok(err)
				m.back(steps)
				m.equal("host after undo", before, m.picture(true))
				if !died && !again {
					return
				}
			}
		})
	}
}

func indexOf(steps []backends.Step, p change.Path) int {
	for i, s := range steps {
		if s.Change.Path == p {
			return i
		}
	}
	return -1
}

// What is written to one name is written to all; nothing of it is lost.
func TestNamesOfOneFileAreWritten(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:old")
	steps := f.swap(f.names("new", "/etc/a", "/etc/b"))
	f.put("etc/b", "file:edited")
	left, err := f.host.Undo(t.Context(), steps)
	f.ok(err)
	if len(left) != 2 || f.read("etc/a") != "edited" || f.read("etc/b") != "edited" {
		t.Errorf("leftovers %s", sprint(left))
	}
	if f.read(string(backup(steps[0]))) != "old" {
		t.Error("the original is lost")
	}
}

// Names that are to be one file but are not in the plan, or differ in it.
func TestNamesThatContradictEachOther(t *testing.T) {
	for name, upset := range map[string]func(cs []change.Change) []change.Change{
		"the first name is missing": func(cs []change.Change) []change.Change { return cs[1:] },
		"another content":           func(cs []change.Change) []change.Change { cs[1].New.SHA256 = strings.Repeat("0", 64); return cs },
		"another mode":              func(cs []change.Change) []change.Change { cs[1].New.Mode = 0o600; return cs },
		"a chain":                   func(cs []change.Change) []change.Change { cs[0].New.Link = "/etc/b"; return cs },
		"the first is a directory":  func(cs []change.Change) []change.Change { cs[0].New.Type = change.Directory; return cs },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.put("etc", "dir")
			cs := upset(f.names("new", "/etc/a", "/etc/b"))
			got, err := f.host.Preflight(t.Context(), cs)
			f.ok(err)
			if len(got) == 0 || got[0].What != "unsupported" {
				t.Errorf("blockers %+v", got)
			}
			if _, err := f.host.Snapshot(t.Context(), "apply-1", cs); err == nil {
				t.Error("snapshot took it")
			}
		})
	}
}

// link(2) crosses no mount, even of the same filesystem, and no subvolume.
func TestNamesAcrossMountsAreBlocked(t *testing.T) {
	for name, arrange := range map[string]func(f *fixture){
		"bind mount": func(f *fixture) { f.ok(unix.Mount(f.path("etc/b"), f.path("etc/b"), "", unix.MS_BIND, "")) },
		"filesystem": func(f *fixture) { f.ok(unix.Mount("tmpfs", f.path("etc/b"), "tmpfs", 0, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			nstest.NewMount(t)
			f := newFixture(t)
			f.put("etc/b", "dir")
			arrange(f)
			cs := append(f.names("new", "/etc/a", "/etc/b/n/c"), f.change("/etc/b/n", "dir"))
			got, err := f.host.Preflight(t.Context(), cs)
			f.ok(err)
			if len(got) != 1 || got[0].What != "hard-link" || got[0].Subject != "/etc/b/n/c" {
				t.Errorf("blockers %+v", got)
			}
		})
	}
}

// Taken back from the second copy, what was one file is one file: with the names
// that were in the plan, and with one that never was.
func TestLateUndoJoinsNames(t *testing.T) {
	for name, c := range map[string]struct {
		upset func(f *fixture)
		links uint64 // of a name that was in the plan
		left  int
	}{
		"with a name outside the plan": {func(*fixture) {}, 5, 0},
		"that name is written":         {func(f *fixture) { f.put("srv/outside", "file:theirs") }, 4, 4},
		"that name is gone":            {func(f *fixture) { f.ok(os.Remove(f.path("srv/outside"))) }, 4, 0},
		"and its number is another's": {func(f *fixture) {
			ino, _ := f.inode("srv/outside")
			f.ok(os.Remove(f.path("srv/outside")))
			for i := range 2000 {
				p := fmt.Sprint("srv/", i)
				f.put(p, "file:shared")
				f.ok(os.Chmod(f.path(p), 0o640), os.Chtimes(f.path(p), old, old))
				if n, _ := f.inode(p); n == ino {
					return
				}
			}
			f.t.Fatal("the filesystem never gave the number again")
		}, 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			nstest.NewMount(t, nstest.Root)
			f := fixtureAt(t, newDisk(t, loopfs.Ext4))
			f.put("srv/outside", "file:shared")
			f.put("etc/gone/x", "file:x")
			inPlan := []string{"etc/a", "etc/gone/in", "etc/b", "etc/z"}
			for _, p := range inPlan {
				f.ok(os.Link(f.path("srv/outside"), f.path(p)))
			}
			f.age()
			was, _ := f.inode("etc/a")
			steps := f.stage([]change.Change{
				f.change("/etc/a", "file:new"), f.change("/etc/b", "none"), f.change("/etc/z", "link:a"),
				f.change("/etc/gone", "none"), f.change("/etc/gone/in", "none"), f.change("/etc/gone/x", "none"),
			})
			second := filepath.Join(t.TempDir(), "second")
			f.ok(f.archive(steps, second))
			f.ok(f.host.Swap(t.Context(), steps))
			f.ok(f.host.Clean(t.Context(), steps, false))
			c.upset(f)
			steps, err := f.host.Restore(t.Context(), steps, second)
			f.ok(err)
			left, err := f.host.Undo(t.Context(), steps)
			f.ok(err)
			if len(left) != c.left {
				t.Errorf("leftovers %s", sprint(left))
			}
			for _, l := range left {
				if !strings.Contains(l.Found, fmt.Sprint(was)) || !strings.Contains(l.Fix, "-inum") {
					t.Errorf("leftover %+v", l)
				}
			}
			f.one(c.links, inPlan...)
			if now, _ := f.inode("etc/a"); (now == was) != (c.links == 5) {
				t.Errorf("inode %d, was %d", now, was)
			}
			for _, p := range inPlan {
				if f.read(p) != "shared" {
					t.Errorf("%s is %q", p, f.read(p))
				}
			}
		})
	}
}

// Killed at any point of the way back from the second copy, and tried again.
func TestLateUndoOfNamesKilled(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := fixtureAt(t, newDisk(t, loopfs.XFS))
	f.put("etc/a", "file:shared")
	f.put("etc/gone/x", "file:x")
	for _, p := range []string{"etc/b", "etc/gone/in"} {
		f.ok(os.Link(f.path("etc/a"), f.path(p)))
	}
	f.age()
	cs := func() []change.Change {
		return []change.Change{
			f.change("/etc/a", "file:new"), f.change("/etc/b", "none"),
			f.change("/etc/gone", "none"), f.change("/etc/gone/in", "none"), f.change("/etc/gone/x", "none"),
		}
	}
	m := &model{fixture: f}
	before := m.picture(false)
	points := 0
	for n := 0; ; n++ {
		steps, second := f.stageAs(fmt.Sprint("apply-", n), cs()), filepath.Join(t.TempDir(), "second")
		f.ok(f.archive(steps, second), f.host.Swap(t.Context(), steps), f.host.Clean(t.Context(), steps, false))
		died, err := dying(n, func() error {
			_, err := f.host.Restore(t.Context(), steps, second)
			return err
		})
		f.ok(err)
		steps, err = f.host.Restore(t.Context(), steps, second)
		f.ok(err)
		f.back(steps)
		f.one(3, "etc/a", "etc/b", "etc/gone/in")
		m.equal(fmt.Sprintf("host after dying at point %d", n), before, m.picture(false))
		if !died {
			break
		}
		points++
	}
	if points < 4 {
		t.Errorf("killed at %d points", points)
	}
}

// Only some originals are gone; the others are still in their slots, and what
// was one file with them is so again.
func TestLateUndoOfOneOfTwoNames(t *testing.T) {
	for _, gone := range []int{0, 1} {
		t.Run(fmt.Sprint("slot ", gone), func(t *testing.T) {
			f := newFixture(t)
			f.put("etc/a", "file:shared")
			f.ok(os.Link(f.path("etc/a"), f.path("etc/b")))
			f.age()
			before := f.manifest()
			steps := f.stage([]change.Change{f.change("/etc/a", "file:new"), f.change("/etc/b", "file:new too")})
			second := filepath.Join(t.TempDir(), "second")
			f.ok(f.archive(steps, second))
			f.ok(f.host.Swap(t.Context(), steps))
			f.ok(os.Remove(f.path(string(backup(steps[gone])))))
			steps, err := f.host.Restore(t.Context(), steps, second)
			f.ok(err)
			f.back(steps)
			f.same("host after undo", before, f.manifest())
			f.one(2, "etc/a", "etc/b")
		})
	}
}

// A link that somebody made to ours, or took away, is not ours to judge.
func TestAnotherNameMadeMeanwhile(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:old")
	f.age()
	steps := f.swap(f.names("new", "/etc/a", "/etc/b"))
	f.ok(os.Link(f.path("etc/b"), f.path("theirs")))
	left, err := f.host.Verify(context.Background(), steps)
	f.ok(err)
	if len(left) > 0 {
		t.Errorf("not as wanted: %s", sprint(left))
	}
	f.back(steps)
	if f.read("etc/a") != "old" || f.read("theirs") != "new" {
		t.Error("not undone, or theirs is gone")
	}
	if _, err := os.Lstat(f.path("etc/b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("etc/b: %v", err)
	}
}
