package linuxns

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// base makes a directory tree below the host's /tmp with one file in it.
func base(t *testing.T) string {
	t.Helper()
	nstest.Require(t, nstest.Root)
	dir, err := os.MkdirTemp("/srv", "nsb-base-") // /tmp is ephemeral to a plan
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "host\n")
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWritesStayInTheLayer(t *testing.T) {
	nstest.Require(t, nstest.Tool("setcap"), nstest.Tool("setfacl"))
	dir := base(t)
	write(t, dir+"/gone", "")
	write(t, dir+"/prog", "")
	e := newEnv(t)
	status, out := e.sh(`set -e; cd ` + dir + `
		echo more >> file; chown 33:42 file
		rm gone
		echo x > own; chown 1234:5678 own; chmod 6755 own
		setcap cap_net_raw+ep prog
		setfacl -m u:1234:rwx own
		cp /usr/bin/true suid; chmod 4755 suid`)
	if status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	t.Run("the host is as it was", func(t *testing.T) {
		if got := read(t, dir+"/file"); got != "host\n" {
			t.Errorf("file holds %q", got)
		}
		if exists(dir+"/own") || !exists(dir+"/gone") {
			t.Error("names came or went")
		}
	})
	t.Run("the layer holds plain ids, modes, capabilities and ACLs of the host", func(t *testing.T) {
		for name, want := range map[string]struct {
			uid, gid, mode uint32
		}{"file": {33, 42, 0o100644}, "own": {1234, 5678, 0o106775}, "suid": {0, 0, 0o104755}} {
			var st unix.Stat_t
			if err := unix.Lstat(e.upper(dir+"/"+name), &st); err != nil {
				t.Fatal(err)
			}
			if st.Uid != want.uid || st.Gid != want.gid || st.Mode != want.mode {
				t.Errorf("%s: %d:%d %o, want %+v", name, st.Uid, st.Gid, st.Mode, want)
			}
		}
		buf := make([]byte, 64)
		n, err := unix.Lgetxattr(e.upper(dir+"/prog"), "security.capability", buf)
		if err != nil || n != 20 || buf[3] != 2 { // the form without a namespace's root id
			t.Errorf("capability is % x, %v", buf[:max(n, 0)], err)
		}
		n, err = unix.Lgetxattr(e.upper(dir+"/own"), "system.posix_acl_access", buf)
		if err != nil || n < 20 || uint32(buf[16])|uint32(buf[17])<<8 != 1234 {
			t.Errorf("ACL is % x, %v", buf[:max(n, 0)], err)
		}
	})
	t.Run("a deletion is a whiteout", func(t *testing.T) {
		var st unix.Stat_t
		if err := unix.Lstat(e.upper(dir+"/gone"), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
			t.Errorf("mode %o, device %d, %v", st.Mode, st.Rdev, err)
		}
	})
	t.Run("it outlives the view", func(t *testing.T) {
		init := e.live()
		if err := syscall.Kill(init, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		out := e.must("sh", "-c", "cd "+dir+"; cat file; stat -c %u:%g:%a own; ls gone 2>&1; true")
		if want := "host\nmore\n1234:5678:6775\n"; !strings.HasPrefix(out, want) || !strings.Contains(out, "No such file") {
			t.Errorf("got %q", out)
		}
		if e.live() == init {
			t.Error("the view was not built again")
		}
	})
}

func TestChanges(t *testing.T) {
	dir := base(t)
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	e.must("sh", "-c", "cd "+dir+"; echo new > file; mkdir sub; echo x > sub/y; ln -s file link")
	d, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range d.Changes {
		got = append(got, string(c.Op)+" "+strings.TrimPrefix(string(c.Path), dir))
	}
	if want := []string{"modified /file", "added /link", "added /sub", "added /sub/y"}; !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
	if len(d.Blockers) > 0 || len(d.Network) > 0 {
		t.Errorf("blockers %+v, network %q", d.Blockers, d.Network)
	}
	f, err := e.view().Content(t.Context(), change.Path(dir+"/file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 16)
	if n, _ := f.Read(b); string(b[:n]) != "new\n" {
		t.Errorf("content %q", b[:n])
	}
}

func TestStage(t *testing.T) {
	dir := base(t)
	write(t, dir+"/other", "gone soon\n")
	if err := os.Symlink("/etc", dir+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/file", 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir+"/file", 33, 34); err != nil {
		t.Fatal(err)
	}
	candidate := filepath.Join(t.TempDir(), "candidate")
	write(t, candidate, "candidate\n")
	if err := os.Chmod(candidate, 0o755); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	stage := func(path string, remove bool, content bool) error {
		t.Helper()
		c := backends.Candidate{Delete: remove}
		if content {
			f, err := os.Open(candidate)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			f.Seek(3, 0) // wherever the caller's offset is
			c.From = f
		}
		return e.view().Stage(t.Context(), change.Path(path), c)
	}
	e.detach("sleep", "1000") // it sees what is staged at once
	for _, tc := range []struct {
		name            string
		path            string
		remove, content bool
		script, want    string
	}{
		{"content keeps owner and mode", "/file", false, true, "cat file; stat -c %u:%g:%a file", "candidate\n33:34:640\n"},
		{"a new file below new directories", "/new/deep/prog", false, true, "stat -c %u:%g:%a:%n new/deep/prog new/deep", "0:0:755:new/deep/prog\n0:0:755:new/deep\n"},
		{"a deletion", "/other", true, false, "ls other 2>/dev/null; echo $?", "2\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := stage(dir+tc.path, tc.remove, tc.content); err != nil {
				t.Fatal(err)
			}
			if got := e.must("sh", "-c", "cd "+dir+"; "+tc.script); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := read(t, dir+"/file"); got != "host\n" || !exists(dir+"/other") {
		t.Error("the host was changed")
	}
	for _, tc := range []struct {
		name, path string
		says       string
	}{
		{"outside the base", "/etc/passwd", backends.ErrOutsideBase.Error()},
		{"not clean", dir + "/../passwd", "not the absolute path"},
		{"a parent that is a symlink", dir + "/out/passwd", "a parent of it is a symlink"},
		{"a symlink", dir + "/out", "it is a symlink"},
		{"a directory", dir + "/new", "it is a directory"},
	} {
		t.Run("refused: "+tc.name, func(t *testing.T) {
			err := stage(tc.path, false, true)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want %q", err, tc.says)
			}
			if tc.path == "/etc/passwd" && !errors.Is(err, backends.ErrOutsideBase) {
				t.Errorf("%v is not ErrOutsideBase", err)
			}
		})
	}
	t.Run("a copy of a file that the host has not", func(t *testing.T) {
		if err := stage(dir+"/missing", false, false); !errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), "no such file") {
			t.Error(err)
		}
	})
}

func TestReset(t *testing.T) {
	dir := base(t)
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	e.must("sh", "-c", "cd "+dir+"; echo a > file; echo b > other")
	t.Run("refused while something lives, which is named", func(t *testing.T) {
		e.detach("sleep", "1000")
		err := e.view().Reset(t.Context(), backends.Reset{All: true})
		if !errors.Is(err, backends.ErrBusyView) || !strings.Contains(err.Error(), "sleep (") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("of one path, ending it", func(t *testing.T) {
		r := backends.Reset{Paths: []change.Path{change.Path(dir + "/file")}, Stop: true}
		if err := e.view().Reset(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := e.must("sh", "-c", "cd "+dir+"; cat file other"); got != "host\nb\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("of everything", func(t *testing.T) {
		if err := e.view().Reset(t.Context(), backends.Reset{All: true}); err != nil {
			t.Fatal(err)
		}
		if got := e.must("ls", dir); got != "file\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("of what was applied", func(t *testing.T) {
		e.must("sh", "-c", "cd "+dir+"; echo applied > file")
		write(t, dir+"/file", "applied\n")
		r := backends.Reset{Paths: []change.Path{change.Path(dir + "/file")}, Settled: true}
		if err := e.view().Reset(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		write(t, dir+"/file", "host again\n")
		if got := e.must("cat", dir+"/file"); got != "host again\n" {
			t.Errorf("the layer still has it: %q", got)
		}
	})
}
