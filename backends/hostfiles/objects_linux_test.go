package hostfiles

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestNamesThatNobodyExpects(t *testing.T) {
	f := newFixture(t)
	names := []string{
		"with\nnewline", "-rf", "trailing ", " leading", "\xff\xfe", `back\slash`, "'quoted'", "$(id)", "*", "...",
		strings.Repeat("x", 255), "\u202e bidi", "\x1b[31m",
	}
	for _, n := range names {
		f.put("etc/"+n, "file:old "+n)
	}
	f.age()
	before := f.manifest()
	var cs []change.Change
	for i, n := range names {
		if i%2 == 0 {
			cs = append(cs, f.change("/etc/"+n, "file:new "+n))
		} else {
			cs = append(cs, f.change("/etc/"+n, "none"))
		}
		cs = append(cs, f.change("/etc/new."+n[:min(len(n), 200)], "link:"+n))
		cs = append(cs, f.change("/etc/fifo."+n[:min(len(n), 200)], "fifo"))
	}
	cs = append(cs, f.names("one file", "/etc/d\n/\xff", "/etc/d\n/- ", "/etc/z\n\xfe ")...)
	cs = append(cs, f.change("/etc/d\n", "dir"))
	// With the first backup gone, so that the second has to know the names too.
	ctx, second := context.Background(), filepath.Join(t.TempDir(), "second")
	steps := f.stage(cs)
	f.ok(f.archive(steps, second))
	f.ok(f.host.Swap(ctx, steps))
	f.ok(f.host.Clean(ctx, steps, false))
	steps, err := f.host.Restore(ctx, steps, second)
	f.ok(err)
	f.back(steps)
	f.same("host after undo", before, f.manifest())
}

// PATH_MAX is 4096 with the terminating NUL, and the root counts for the kernel
// only when it is part of the string.
func TestPathsAsLongAsTheyGet(t *testing.T) {
	f := newFixture(t)
	deep := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 199)+"/", 20), "/")
	cs := []change.Change{}
	for at := deep; at != "."; at = filepath.Dir(at) {
		cs = append(cs, f.change("/"+at, "dir"))
	}
	file := "/" + deep + "/" + strings.Repeat("f", 90)
	if len(file) < 4090 {
		t.Fatalf("the path has only %d bytes", len(file))
	}
	cs = append(cs, f.names("deep", file, file+"2")...)
	steps := f.swap(cs)
	left, err := f.host.Verify(context.Background(), steps)
	f.ok(err)
	if len(left) > 0 {
		t.Errorf("not as wanted: %+v", left)
	}
	f.back(f.swapAs("apply-2", []change.Change{f.change(file, "file:deeper")}))
	f.back(steps)
	if list, err := os.ReadDir(f.dir); err != nil || len(list) > 0 {
		t.Errorf("left over: %v, %v", list, err)
	}

	// All of it again, other things on top, and these back from the second copy.
	f.swap(cs)
	m := &model{fixture: f} // whose picture is taken by descriptors
	before := m.picture(false)
	cs = append(f.names("deeper", file+"2", file+"4"), f.change(file+"3", "fifo"), f.change(file, "none"))
	steps, second := f.stageAs("apply-2", cs), filepath.Join(t.TempDir(), "second")
	f.ok(f.archive(steps, second), f.host.Swap(t.Context(), steps), f.host.Clean(t.Context(), steps, false))
	steps, err = f.host.Restore(t.Context(), steps, second)
	f.ok(err)
	f.back(steps)
	m.equal("host after a late undo", before, m.picture(false))
	if last := before[len(before)-1]; !strings.Contains(last, " links 2: ") {
		t.Errorf("not one file of two names: %.80q…", last)
	}
}

func TestHardLinkedPairIsOneInodeAgain(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:one")
	f.ok(os.Link(f.path("etc/a"), f.path("etc/b")))
	f.ok(os.Link(f.path("etc/a"), f.path("etc/c")))
	before := f.manifest()
	cs := []change.Change{f.change("/etc/a", "file:two"), f.change("/etc/b", "file:two")}
	if cs[0].Old.Links != 3 {
		t.Errorf("links %d", cs[0].Old.Links)
	}
	steps := f.swap(cs)
	if f.read("etc/a") != "two" || f.read("etc/c") != "one" {
		t.Error("the swap did not replace exactly the two names")
	}
	f.back(steps)
	f.same("host after undo", before, f.manifest())
	var a, b, c unix.Stat_t
	f.ok(unix.Stat(f.path("etc/a"), &a))
	f.ok(unix.Stat(f.path("etc/b"), &b))
	f.ok(unix.Stat(f.path("etc/c"), &c))
	if a.Ino != b.Ino || b.Ino != c.Ino || a.Nlink != 3 {
		t.Errorf("inodes %d %d %d, %d links", a.Ino, b.Ino, c.Ino, a.Nlink)
	}
}

// A running program cannot be written to (ETXTBSY), but exchanged.
func TestRunningBinaryIsReplaced(t *testing.T) {
	f := newFixture(t)
	f.ok(os.MkdirAll(f.path("bin"), 0o755))
	out, err := exec.Command("cp", "/bin/cat", f.path("bin/cat")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(f.path("bin/cat"))
	in, err := cmd.StdinPipe()
	f.ok(err)
	f.ok(cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	before := f.manifest()
	steps := f.swap([]change.Change{f.change("/bin/cat", "file:#!/bin/false")})
	if f.read("bin/cat") != "#!/bin/false" {
		t.Error("not replaced")
	}
	f.back(steps)
	f.same("host after undo", before, f.manifest())
}

func TestExtendedAttributesStay(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Tool("setfacl"), nstest.Tool("getfacl"), nstest.Tool("setcap"))
	f := newFixture(t)
	f.put("etc/a", "file:old")
	f.ok(os.Chown(f.path("etc/a"), 3, 4))
	f.ok(os.Chmod(f.path("etc/a"), 0o4755))
	tool := func(argv ...string) string {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
		return string(out)
	}
	tool("setfacl", "-m", "u:7:rw", f.path("etc/a"))
	tool("setcap", "cap_net_admin+ep", f.path("etc/a"))
	f.ok(unix.Setxattr(f.path("etc/a"), "user.note", []byte("kept"), 0))
	f.ok(unix.Setxattr(f.path("etc/a"), "trusted.overlay.origin", []byte("not ours to spread"), 0))
	c := f.change("/etc/a", "file:new")
	c.New.Mode, c.New.UID, c.New.GID, c.New.Xattrs = c.Old.Mode, 3, 4, c.Old.Xattrs

	show := func() string {
		return tool("getfacl", "-n", "--omit-header", f.path("etc/a")) + tool("getcap", "-n", f.path("etc/a"))
	}
	before := show()
	steps := f.swap([]change.Change{c})
	f.same("access list and capability of the new file", before, show())
	all := f.xattrs("etc/a")
	if string(all["user.note"]) != "kept" {
		t.Errorf("user attribute %q", all["user.note"])
	}
	if v, ok := all["trusted.overlay.origin"]; ok {
		t.Errorf("overlay's bookkeeping was copied: %q", v)
	}
	f.back(steps)
	f.same("access list and capability after undo", before, show())
}

// Each mount has a hidden directory of its own, at its top; a bind mount of the
// same filesystem is another mount.
func TestHiddenDirectoriesAreHighAndPerMount(t *testing.T) {
	nstest.NewMount(t)
	f := newFixture(t)
	f.put("etc/conf.d/a", "file:a")
	f.put("srv/data/sub", "dir")
	f.put("bound", "dir")
	f.put("open/x", "dir")
	f.ok(unix.Mount("tmpfs", f.path("srv/data"), "tmpfs", 0, ""))
	f.put("srv/data/sub", "dir")
	f.ok(unix.Mount(f.path("etc"), f.path("bound"), "", unix.MS_BIND, ""))
	f.put("bound/b", "file:b")
	steps := f.swap([]change.Change{
		f.change("/etc/conf.d/a", "file:new"), f.change("/srv/data/sub/c", "file:c"), f.change("/bound/b", "file:new"),
	})
	got := map[change.Path]string{}
	for _, s := range steps {
		d, _ := split(s.Place.Dir)
		got[s.Change.Path] = string(d)
	}
	for p, want := range map[change.Path]string{"/etc/conf.d/a": "/", "/srv/data/sub/c": "/srv/data", "/bound/b": "/bound"} {
		if got[p] != want {
			t.Errorf("%s is staged in %s, want %s", p, got[p], want)
		}
	}
	fi, err := os.Lstat(f.path(string(steps[0].Place.Dir)))
	f.ok(err)
	if fi.Mode().Perm() != 0 {
		t.Errorf("hidden directory has mode %v", fi.Mode())
	}
	f.back(steps)
}

// A disk that is full before staging ends is found by the staging, and nothing
// of it remains.
func TestFullDiskWhileStaging(t *testing.T) {
	nstest.NewMount(t)
	f := newFixture(t)
	f.put("small", "dir")
	f.ok(unix.Mount("tmpfs", f.path("small"), "tmpfs", 0, "size=1m"))
	f.put("small/a", "file:old")
	before := f.manifest()
	var cs []change.Change
	for _, n := range []string{"/small/a", "/small/b", "/small/c"} {
		cs = append(cs, f.change(n, "file:"+n+strings.Repeat("x", 200<<10)))
	}
	steps, err := f.host.Snapshot(context.Background(), "apply-1", cs)
	f.ok(err)
	// Somebody takes the space after preflight and snapshot.
	f.put("small/hog", "file:"+strings.Repeat("h", 700<<10))
	if _, err = f.host.Stage(context.Background(), steps, f.wanted); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("stage: %v", err)
	}
	f.ok(f.host.Clean(context.Background(), steps, false))
	f.ok(os.Remove(f.path("small/hog")))
	f.ok(os.Chtimes(f.path("small"), time.Time{}, time.Time{}))
	f.same("host", withoutTimesOf(before, "small"), withoutTimesOf(f.manifest(), "small"))
}

func withoutTimesOf(manifest, dir string) string {
	var b strings.Builder
	for line := range strings.Lines(manifest) {
		if !strings.HasPrefix(line, "./"+dir+" ") && !strings.HasPrefix(line, ". ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// What the plan store gives must be what was planned.
func TestWrongContentIsRefused(t *testing.T) {
	f := newFixture(t)
	c := f.change("/a", "file:planned")
	f.wanted[c.New.SHA256] = "other"
	steps, err := f.host.Snapshot(context.Background(), "apply-1", []change.Change{c})
	f.ok(err)
	if _, err := f.host.Stage(context.Background(), steps, f.wanted); err == nil || !strings.Contains(err.Error(), "planned was") {
		t.Fatalf("stage: %v", err)
	}
	f.ok(f.host.Clean(context.Background(), steps, false))
	if list, err := os.ReadDir(f.dir); err != nil || len(list) > 0 {
		t.Errorf("left over: %v, %v", list, err)
	}
}

// A fifo on the host blocks nobody: it is told by its type, never opened.
func TestFifoIsNotOpened(t *testing.T) {
	f := newFixture(t)
	f.ok(unix.Mkfifo(f.path("p"), 0o600))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	got, err := f.host.Observe(ctx, []change.Path{"/p"})
	f.ok(err)
	if got[0].Type != "fifo" {
		t.Errorf("observed %+v", got[0])
	}
}

// Where nothing has an attribute, nothing new gets one: not even an empty label.
func TestNewObjectsGetNoAttributes(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:old")
	steps := f.swap([]change.Change{
		f.change("/etc/a", "file:new"), f.change("/etc/b", "file:b"), f.change("/etc/l", "link:a"), f.change("/etc/d", "dir"),
	})
	for _, n := range []string{"a", "b", "l", "d"} {
		buf := make([]byte, 1024)
		k, err := unix.Llistxattr(f.path("etc/"+n), buf)
		f.ok(err)
		if k > 0 {
			t.Errorf("%s has %q", n, buf[:k])
		}
	}
	f.back(steps)
}
