package upper

import (
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// deep makes a file below dir whose name, relative to dir, has the given length,
// in directories with names of elem bytes. No single call could name the file
// when it is longer than the kernel takes, so each step is one from a descriptor.
func deep(t *testing.T, dir string, length, elem int) string {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	name := strings.Repeat("n", elem)
	rel := ""
	for length-len(rel) > elem+1 {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		must(t, err)
		fd, rel = next, rel+name+"/"
	}
	defer unix.Close(fd)
	leaf := strings.Repeat("f", length-len(rel))
	f, err := unix.Openat(fd, leaf, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
	must(t, err)
	defer unix.Close(f)
	_, err = unix.Write(f, []byte("deep"))
	must(t, err)
	return rel + leaf
}

// Every path that the kernel takes works, to the last byte and however many
// directories it has.
func TestPathsUpToTheKernelsLimit(t *testing.T) {
	for name, elem := range map[string]int{"few long names": 255, "many short ones": 1} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, "true")
			rel := deep(t, l.merged, unix.PathMax-1-len(l.host)-1, elem)
			p := change.Path(path.Join(l.host, rel))
			if len(p) != unix.PathMax-1 {
				t.Fatalf("the path has %d bytes", len(p))
			}
			d := l.diff()
			if n := strings.Count(rel, "/") + 1; len(d.Blockers) > 0 || len(d.Changes) != n || d.Changes[n-1].Path != p {
				t.Fatalf("%d changes, want %d, the last one the file; blockers %+v", len(d.Changes), n, d.Blockers)
			}
			f, err := Open(l.env, p)
			must(t, err)
			defer f.Close()
			if b, err := io.ReadAll(f); err != nil || string(b) != "deep" {
				t.Errorf("content %q, %v", b, err)
			}
			must(t, MarkStaged(l.env, p))
			l.unmount()
			must(t, Remove(l.env, []change.Path{p}))
			l.mount()
			if d := l.diff(); len(d.Changes) != strings.Count(rel, "/") {
				t.Errorf("%d changes after the reset of the file", len(d.Changes))
			}
			l.unmount()
			must(t, RemoveAll(l.env))
			l.mount()
			l.want("")
		})
	}
}

// What lies deeper is named, whichever side has it, and a reset still takes it.
func TestLongerPathsAreNamed(t *testing.T) {
	l := newLab(t, "mkdir old")
	l.unmount()
	deep(t, l.host+"/old", unix.PathMax, 200)
	l.mount()
	l.inView("rm -r old; mkdir new")
	deep(t, l.merged+"/new", unix.PathMax, 200)
	for _, b := range l.diff().Blockers {
		if b.What != "name-too-long" {
			t.Errorf("blocker %+v", b)
		}
	}
	if n := len(l.diff().Blockers); n != 2 {
		t.Errorf("%d blockers, want one on each side", n)
	}
	l.unmount()
	must(t, Remove(l.env, l.paths("old", "new")))
	l.mount()
	l.want("")
}

// Bytes that mean something to a shell, a terminal or a text are only bytes here.
func TestStrangeNames(t *testing.T) {
	strange := []string{
		"a\nb", "it's", `"q"`, "-n", "trail ", " lead", `back\slash`, "\xff\xfe", "\x1b[2J", "…", "a\u202eb", "*", "$(x)", strings.Repeat("l", 255),
	}
	l := newLab(t, "mkdir old both new")
	l.unmount()
	write := func(dir, name, content string) { must(t, os.WriteFile(dir+"/"+name, []byte(content), 0o644)) }
	for _, name := range strange {
		write(l.host+"/old", name, "old")
		write(l.host+"/both", name, "old")
	}
	l.mount()
	for _, name := range strange {
		must(t, os.Remove(l.merged+"/old/"+name))
		write(l.merged+"/both", name, "new")
		write(l.merged+"/new", name, "new")
		must(t, MarkStaged(l.env, change.Path(l.host+"/new/"+name)))
	}
	ops := map[change.Path]change.Op{}
	for _, c := range l.diff().Changes {
		ops[c.Path] = c.Op
	}
	staged, err := readStaged(l.env)
	must(t, err)
	for _, name := range strange {
		for dir, op := range map[string]change.Op{"old": change.Deleted, "both": change.Modified, "new": change.Added} {
			if p := change.Path(l.host + "/" + dir + "/" + name); ops[p] != op {
				t.Errorf("%s is %q, want %s", p, ops[p], op)
			}
		}
		if p := change.Path(l.host + "/new/" + name); !slices.Contains(staged, p) {
			t.Errorf("%s is not staged", p)
		}
	}
	if len(ops) != 3*len(strange) {
		t.Errorf("%d changes, want %d", len(ops), 3*len(strange))
	}
	l.unmount()
	for p := range ops {
		must(t, Remove(l.env, []change.Path{p}))
	}
	l.mount()
	l.want("")
}
