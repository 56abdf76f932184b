package hostfiles

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// Somebody changes the host between snapshot and swap. The swap refuses, and the
// undo that follows leaves exactly what they made.
func TestHostChangedBeforeTheSwap(t *testing.T) {
	for name, upset := range map[string]func(*fixture){
		"a file is written":  func(f *fixture) { f.put("etc/a", "file:edited") },
		"a file is replaced": func(f *fixture) { f.ok(os.Remove(f.path("etc/a"))); f.put("etc/a", "file:edited") },
		"a file is deleted":  func(f *fixture) { f.ok(os.Remove(f.path("etc/a"))) },
		"a file is written and its time put back": func(f *fixture) {
			f.put("etc/a", "file:odd")
			f.ok(os.Chtimes(f.path("etc/a"), old, old))
		},
		"only its mode changes":      func(f *fixture) { f.ok(os.Chmod(f.path("etc/a"), 0o600)) },
		"a new file's name is taken": func(f *fixture) { f.put("etc/new", "file:theirs") },
		"a deleted directory fills":  func(f *fixture) { f.put("etc/gone/late", "file:late") },
		"deep in it, too":            func(f *fixture) { f.put("etc/gone/sub/late", "file:late") },
		"a file in it is written": func(f *fixture) {
			f.put("etc/gone/sub/x", "file:y")
			f.ok(os.Chtimes(f.path("etc/gone/sub/x"), old, old))
		},
		"only the mode of a file in it changes": func(f *fixture) { f.ok(os.Chmod(f.path("etc/gone/sub/x"), 0o600)) },
		"a file in it gets an attribute":        func(f *fixture) { f.ok(unix.Setxattr(f.path("etc/gone/sub/x"), "user.k", nil, 0)) },
		"a symlink in it points elsewhere": func(f *fixture) {
			f.ok(os.Remove(f.path("etc/gone/l")))
			f.put("etc/gone/l", "link:elsewhere")
		},
		"a symlink in it becomes a file": func(f *fixture) {
			f.ok(os.Remove(f.path("etc/gone/l")))
			f.put("etc/gone/l", "file:theirs")
		},
		"a directory in it becomes a file": func(f *fixture) {
			f.ok(os.Remove(f.path("etc/gone/empty")))
			f.put("etc/gone/empty", "file:theirs")
		},
		"only the mode of a directory in it changes": func(f *fixture) { f.ok(os.Chmod(f.path("etc/gone/sub"), 0o1777)) },
		"a directory's mode changes":                 func(f *fixture) { f.ok(os.Chmod(f.path("etc/mode"), 0o1777)) },
		"the directory is replaced by a symlink": func(f *fixture) {
			f.ok(os.Rename(f.path("etc"), f.path("moved")))
			f.put("victim/a", "file:victim")
			f.ok(os.Symlink("victim", f.path("etc")))
		},
		"the directory is another one": func(f *fixture) {
			f.ok(os.Rename(f.path("etc"), f.path("moved")))
			f.put("etc/a", "file:lookalike")
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.put("etc/a", "file:old")
			f.put("etc/gone/sub/x", "file:x")
			f.put("etc/gone/l", "link:t")
			f.put("etc/gone/empty", "dir")
			f.put("etc/mode", "dir")
			f.put("etc/other", "file:other")
			f.age()
			steps := f.stage([]change.Change{
				f.change("/etc/other", "file:changed"), // swapped before or after, and taken back
				f.change("/etc/a", "file:new"), f.change("/etc/new", "file:new"),
				f.change("/etc/gone", "none"), f.change("/etc/gone/sub", "none"), f.change("/etc/gone/sub/x", "none"),
				f.change("/etc/gone/l", "none"), f.change("/etc/gone/empty", "none"),
				f.change("/etc/mode", "dir"),
			})
			upset(f)
			theirs := timeless(f.manifest())
			err := f.host.Swap(context.Background(), steps)
			if !errors.Is(err, backends.ErrHostChanged) {
				t.Fatalf("swap: %v", err)
			}
			if _, err := f.host.Undo(context.Background(), steps); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(theirs, timeless(f.manifest())); d != "" {
				t.Errorf("host (-theirs +now):\n%s", d)
			}
		})
	}
}

// Nothing is put into a directory that merely has the name.
func TestSwapKnowsTheDirectory(t *testing.T) {
	f := newFixture(t)
	f.put("etc", "dir")
	steps := f.stage([]change.Change{f.change("/etc/new", "file:new")})
	f.ok(os.Rename(f.path("etc"), f.path("moved")))
	f.put("etc", "dir")
	if err := f.host.Swap(context.Background(), steps); !errors.Is(err, backends.ErrHostChanged) {
		t.Errorf("swap: %v", err)
	}
	if _, err := os.Lstat(f.path("etc/new")); !os.IsNotExist(err) {
		t.Errorf("it was put there: %v", err)
	}
}

// timeless drops the times of a manifest, and the hidden directory.
func timeless(picture string) string {
	var b strings.Builder
	for line := range strings.Lines(picture) {
		if what, _, _ := strings.Cut(line, manifest.MTime); !strings.Contains(line, ".netsandbox-") {
			b.WriteString(strings.TrimSuffix(what, "\n") + "\n")
		}
	}
	return b.String()
}

// Somebody works on the host during the trial. What they did stays and is named,
// the original is kept beside it, and everything else is as before.
func TestHostChangedDuringTheTrial(t *testing.T) {
	for name, c := range map[string]struct {
		upset   func(*fixture)
		subject string // of the one leftover; empty for none
		is      [2]string
	}{
		"our file is written":                     {func(f *fixture) { f.put("etc/a", "file:edited") }, "/etc/a", [2]string{"etc/a", "edited"}},
		"our file is replaced":                    {func(f *fixture) { f.replace("etc/a", "edited") }, "/etc/a", [2]string{"etc/a", "edited"}},
		"our added file is written":               {func(f *fixture) { f.put("etc/new", "file:edited") }, "/etc/new", [2]string{"etc/new", "edited"}},
		"our added file is removed":               {func(f *fixture) { f.ok(os.Remove(f.path("etc/new"))) }, "", [2]string{"etc/a", "old"}},
		"our changed file is removed":             {func(f *fixture) { f.ok(os.Remove(f.path("etc/a"))) }, "/etc/a", [2]string{"etc/other", "other"}},
		"a deleted file is made again":            {func(f *fixture) { f.put("etc/gone", "file:theirs") }, "/etc/gone", [2]string{"etc/gone", "theirs"}},
		"a file in our new directory":             {func(f *fixture) { f.put("etc/dir/theirs", "file:theirs") }, "/etc/dir", [2]string{"etc/dir/theirs", "theirs"}},
		"a file in a replacing one":               {func(f *fixture) { f.put("etc/todir/theirs", "file:theirs") }, "/etc/todir", [2]string{"etc/todir/theirs", "theirs"}},
		"our file gets another inode, same bytes": {func(f *fixture) { f.replace("etc/a", "new") }, "/etc/a", [2]string{"etc/a", "new"}},
		"the directory's mode":                    {func(f *fixture) { f.ok(os.Chmod(f.path("etc/mode"), 0o1700)) }, "/etc/mode", [2]string{"etc/a", "old"}},
		"a bystander in the same directory":       {func(f *fixture) { f.put("etc/foreign", "file:f") }, "", [2]string{"etc/foreign", "f"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for p, what := range map[string]string{
				"etc/a": "file:old", "etc/gone": "file:gone", "etc/todir": "file:t", "etc/mode": "dir", "etc/other": "file:other",
			} {
				f.put(p, what)
			}
			f.age()
			before := f.manifest()
			steps := f.swap([]change.Change{
				f.change("/etc/a", "file:new"), f.change("/etc/new", "file:new"), f.change("/etc/gone", "none"),
				f.change("/etc/dir", "dir"), f.change("/etc/dir/f", "file:f"), f.change("/etc/todir", "dir"),
				f.change("/etc/mode", "dir"),
			})
			c.upset(f)
			left, err := f.host.Undo(context.Background(), steps)
			f.ok(err)
			if c.subject == "" && len(left) > 0 || c.subject != "" && (len(left) != 1 || left[0].Subject != c.subject) {
				t.Fatalf("leftovers %+v, want %q", left, c.subject)
			}
			if got := f.read(c.is[0]); got != c.is[1] {
				t.Errorf("%s is %q, want %q", c.is[0], got, c.is[1])
			}
			once := f.manifest()
			again, err := f.host.Undo(context.Background(), steps)
			f.ok(err)
			f.same("leftovers of a second undo", sprint(left), sprint(again))
			f.same("host after a second undo", once, f.manifest())
			f.ok(f.host.Clean(context.Background(), steps, true))
			for line := range strings.Lines(before) {
				// Every line is there again, but those of what they changed.
				if !strings.Contains(f.manifest(), line) && !theirs(line, c.subject) {
					t.Errorf("lost: %s", line)
				}
			}
		})
	}
}

func (f *fixture) replace(p, content string) {
	f.put(p+"~", "file:"+content)
	f.ok(os.Rename(f.path(p+"~"), f.path(p)))
}

// theirs reports a line that somebody else's work may have changed: of their
// subject, and the times of the directories that they wrote to.
func theirs(line, subject string) bool {
	p := strings.TrimPrefix(strings.Fields(line)[0], "./")
	return "/"+p == subject || p == "etc" || p == "."
}

// The trial's process group still has an original open and writes to it. Neither
// bytes nor names are lost, and it is named before the commit.
func TestOldDescriptorIsWritten(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:old")
	f.put("etc/tree/b", "file:b")
	fd, err := os.OpenFile(f.path("etc/a"), os.O_WRONLY|os.O_APPEND, 0)
	f.ok(err)
	defer fd.Close()
	steps := f.swap([]change.Change{
		f.change("/etc/a", "file:new"), f.change("/etc/tree", "none"), f.change("/etc/tree/b", "none"),
	})
	left, err := f.host.Originals(context.Background(), steps)
	f.ok(err)
	if len(left) > 0 {
		t.Fatalf("nothing was written yet: %+v", left)
	}
	_, err = fd.WriteString(" and more")
	f.ok(err)
	left, err = f.host.Originals(context.Background(), steps)
	f.ok(err)
	if len(left) != 1 || left[0].Subject != "/etc/a" || !strings.Contains(left[0].Found, "(hostfiles.test)") {
		t.Fatalf("leftovers %+v", left)
	}
	f.back(steps)
	if got := f.read("etc/a"); got != "old and more" {
		t.Errorf("after undo %q", got)
	}
}

// A parent that becomes a symlink during the trial leads nobody to the victim.
func TestUndoFollowsNoSymlink(t *testing.T) {
	f := newFixture(t)
	f.put("etc/app/a", "file:old")
	f.put("victim/a", "file:new") // the very bytes we would take for ours
	steps := f.swap([]change.Change{f.change("/etc/app/a", "file:new"), f.change("/etc/app/b", "file:b")})
	f.ok(os.Rename(f.path("etc/app"), f.path("etc/moved")))
	f.ok(os.Symlink("../victim", f.path("etc/app")))
	left, err := f.host.Undo(context.Background(), steps)
	f.ok(err)
	if len(left) != 2 {
		t.Errorf("leftovers %+v", left)
	}
	if f.read("victim/a") != "new" || f.read("etc/moved/a") != "new" {
		t.Error("something was changed behind the symlink")
	}
	f.ok(os.Remove(f.path("etc/app")))
	f.put("etc/app", "dir") // another directory of that name is no place for it either
	if left, err = f.host.Undo(context.Background(), steps); err != nil || len(left) != 2 {
		t.Errorf("leftovers %+v, %v", left, err)
	}
	f.ok(os.Remove(f.path("etc/app")))
	f.ok(os.Rename(f.path("etc/moved"), f.path("etc/app")))
	f.back(steps)
	if f.read("etc/app/a") != "old" {
		t.Error("not undone when the directory was back")
	}
}

func sprint(left []backends.Leftover) string {
	var b strings.Builder
	for _, l := range left {
		b.WriteString(l.Subject + ": " + l.Found + "; " + l.Wanted + "; " + l.Fix + "\n")
	}
	return b.String()
}

// A filesystem gives the number of a removed inode to the next one: a file that
// has the number of ours but was made by somebody else is not ours.
func TestReusedInodeNumberIsNotOurs(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := fixtureAt(t, newDisk(t, loopfs.Ext4))
	f.put("etc/a", "file:old")
	steps := f.swap([]change.Change{f.change("/etc/a", "file:new")})
	for range 200 {
		f.ok(os.Remove(f.path("etc/a")))
		f.put("etc/a", "file:theirs")
		var st unix.Stat_t
		f.ok(unix.Lstat(f.path("etc/a"), &st))
		if st.Ino != steps[0].Place.Staged.Ino {
			continue
		}
		left, err := f.host.Undo(context.Background(), steps)
		f.ok(err)
		if len(left) != 1 || f.read("etc/a") != "theirs" {
			t.Fatalf("leftovers %+v, content %q", left, f.read("etc/a"))
		}
		return
	}
	t.Fatal("the filesystem never gave the number again")
}
