package hostfiles

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// Each row arranges one obstacle; Preflight names it, and nothing was written.
func TestPreflightNamesWhatIsInTheWay(t *testing.T) {
	tmpfs := func(f *fixture, at, options string, flags uintptr) {
		f.put(at, "dir")
		f.ok(unix.Mount("tmpfs", f.path(at), "tmpfs", flags, options))
	}
	chattr := func(f *fixture, flag, p string) {
		out, err := exec.Command("chattr", "+"+flag, f.path(p)).CombinedOutput()
		if err != nil {
			f.t.Fatalf("chattr: %v: %s", err, out)
		}
		f.t.Cleanup(func() { exec.Command("chattr", "-"+flag, f.path(p)).Run() })
	}
	for name, c := range map[string]struct {
		want    [2]string // path and what
		arrange func(*fixture)
		upset   func(*fixture) // after the change was derived
		blocker string
		subject string
		says    string // part of the reason
	}{
		"the file was edited": {
			want: [2]string{"/etc/a", "file:new"}, upset: func(f *fixture) { f.put("etc/a", "file:edited") },
			blocker: "conflict", subject: "/etc/a",
		},
		"the file was deleted": {
			want: [2]string{"/etc/a", "file:new"}, upset: func(f *fixture) { f.ok(os.Remove(f.path("etc/a"))) },
			blocker: "conflict", subject: "/etc/a",
		},
		"only its mode was changed": {
			want: [2]string{"/etc/a", "file:new"}, upset: func(f *fixture) { f.ok(os.Chmod(f.path("etc/a"), 0o600)) },
			blocker: "conflict", subject: "/etc/a",
		},
		"only an attribute was set": {
			want: [2]string{"/etc/a", "file:new"}, upset: func(f *fixture) { f.ok(unix.Setxattr(f.path("etc/a"), "user.k", nil, 0)) },
			blocker: "conflict", subject: "/etc/a", says: "with another user.k",
		},
		"the directory of a fifo is append-only": {
			want: [2]string{"/etc/d/p", "none"}, arrange: func(f *fixture) { f.put("etc/d/p", "fifo") }, upset: func(f *fixture) { chattr(f, "a", "etc/d") },
			blocker: "immutable", subject: "/etc/d",
		},
		"a new file's name is taken": {
			want: [2]string{"/etc/b", "file:new"}, upset: func(f *fixture) { f.put("etc/b", "file:theirs") },
			blocker: "conflict", subject: "/etc/b",
		},
		"a fifo took its place": {
			want: [2]string{"/etc/a", "file:new"},
			upset: func(f *fixture) {
				f.ok(os.Remove(f.path("etc/a")))
				f.ok(unix.Mkfifo(f.path("etc/a"), 0o600))
			},
			blocker: "conflict", subject: "/etc/a",
		},
		"the directory became a symlink": {
			want: [2]string{"/etc/a", "file:new"},
			upset: func(f *fixture) {
				f.ok(os.Rename(f.path("etc"), f.path("moved")))
				f.ok(os.Symlink("moved", f.path("etc")))
			},
			blocker: "conflict", subject: "/etc/a",
		},
		"the directory is gone": {
			want: [2]string{"/etc/d/b", "file:new"}, upset: func(f *fixture) { f.ok(os.RemoveAll(f.path("etc/d"))) },
			blocker: "conflict", subject: "/etc/d/b",
		},
		"a deleted directory holds a log": {
			want: [2]string{"/etc/d", "none"}, upset: func(f *fixture) { f.put("etc/d/x.log", "file:log") },
			blocker: "conflict", subject: "/etc/d/x.log",
		},
		"the file is immutable": {
			want: [2]string{"/etc/a", "file:new"}, upset: func(f *fixture) { chattr(f, "i", "etc/a") },
			blocker: "immutable", subject: "/etc/a",
		},
		"the directory is append-only": {
			want: [2]string{"/etc/a", "file:new"}, upset: func(f *fixture) { chattr(f, "a", "etc") },
			blocker: "immutable", subject: "/etc",
		},
		"the file is a mount point": {
			want:    [2]string{"/etc/a", "file:new"},
			arrange: func(f *fixture) { f.ok(unix.Mount(f.path("etc/a"), f.path("etc/a"), "", unix.MS_BIND, "")) },
			blocker: "mount-point", subject: "/etc/a",
		},
		"the mount is read-only": {
			want: [2]string{"/ro/b", "file:new"}, arrange: func(f *fixture) { tmpfs(f, "ro", "", unix.MS_RDONLY) },
			blocker: "read-only", subject: "/ro",
		},
		"a bind mount of a writable filesystem is read-only": {
			want: [2]string{"/etc/d/b", "file:new"},
			arrange: func(f *fixture) {
				f.ok(unix.Mount(f.path("etc/d"), f.path("etc/d"), "", unix.MS_BIND, ""))
				f.ok(unix.Mount("", f.path("etc/d"), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			},
			blocker: "read-only", subject: "/etc/d",
		},
		"the filesystem cannot exchange": {
			want:    [2]string{"/etc/d/b", "file:new"},
			arrange: func(f *fixture) { f.ok(unix.Mount("proc", f.path("etc/d"), "proc", 0, "")) },
			blocker: "filesystem", subject: "/etc/d",
		},
		"there is too little space": {
			want:    [2]string{"/small/b", "file:" + strings.Repeat("x", 100<<10)},
			arrange: func(f *fixture) { tmpfs(f, "small", "size=64k", 0) },
			blocker: "space", subject: "/small",
		},
		"there are too few inodes": {
			want:    [2]string{"/small/b", "file:x"},
			arrange: func(f *fixture) { tmpfs(f, "small", "nr_inodes=2", 0) },
			blocker: "space", subject: "/small",
		},
	} {
		t.Run(name, func(t *testing.T) {
			nstest.NewMount(t, nstest.Tool("chattr"))
			f := newFixture(t)
			f.put("etc/a", "file:old")
			f.put("etc/d", "dir")
			if c.arrange != nil {
				c.arrange(f)
			}
			cs := []change.Change{f.change(c.want[0], c.want[1])}
			if c.upset != nil {
				c.upset(f)
			}
			got, err := f.host.Preflight(context.Background(), cs)
			f.ok(err)
			if len(got) != 1 || got[0].What != c.blocker || got[0].Subject != c.subject || got[0].Reason == "" || !strings.Contains(got[0].Reason, c.says) {
				t.Errorf("blockers %+v, want one %q of %s", got, c.blocker, c.subject)
			}
		})
	}
}

func TestPreflightLetsPass(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:one")
	f.ok(os.Link(f.path("etc/a"), f.path("etc/b")))
	cs := []change.Change{
		f.change("/etc/a", "file:two"), // one of two names
		f.change("/new", "dir"), f.change("/new/sub", "dir"), f.change("/new/sub/f", "file:f"),
	}
	f.ok(os.Chtimes(f.path("etc/a"), old, old)) // touched without other change
	got, err := f.host.Preflight(context.Background(), cs)
	f.ok(err)
	if len(got) > 0 {
		t.Errorf("blockers: %+v", got)
	}
}
