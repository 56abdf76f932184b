package manifest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// empty is the SHA-256 of nothing.
const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// must fails the test at the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, root string, opt manifest.Options) []string {
	t.Helper()
	lines, err := manifest.Read(root, opt)
	must(t, err)
	return lines
}

// undated drops times and owners, which differ from run to run.
func undated(lines []string) []string {
	var all []string
	for _, l := range lines {
		l, _, _ = strings.Cut(l, manifest.MTime)
		if i := strings.LastIndexByte(l, ' '); i > 0 && strings.Contains(l[i:], ":") && !strings.Contains(l, " links ") {
			l = l[:i]
		}
		all = append(all, l)
	}
	return all
}

func file(t *testing.T, path, content string, mode uint32) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600), unix.Chmod(path, mode))
}

func TestEveryTypeIsTold(t *testing.T) {
	d := t.TempDir()
	must(t, os.Chmod(d, 0o755))
	file(t, d+"/a", "", 0o640)
	must(t, os.Mkdir(d+"/d", 0o700), unix.Chmod(d+"/d", 0o1777))
	file(t, d+"/d/hello", "hello\n", 0o4755)
	must(t, os.Symlink("no where", d+"/link"), unix.Mkfifo(d+"/p", 0o600), unix.Chmod(d+"/p", 0o600))
	must(t, unix.Mknod(d+"/s", unix.S_IFSOCK|0o600, 0), unix.Chmod(d+"/s", 0o600))
	file(t, d+"/-a\n\xff", "", 0o600)
	must(t, os.Link(d+"/a", d+"/d/again"))
	want := []string{
		". directory 0755",
		`"./-a\n\xff" file 0600 size 0 sha256 ` + empty,
		"./a file 0640 size 0 sha256 " + empty,
		"./a links 2: ./a ./d/again",
		"./d directory 1777",
		"./d/again file 0640 size 0 sha256 " + empty,
		"./d/again links 2: ./a ./d/again",
		"./d/hello file 4755 size 6 sha256 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
		`./link symlink to "no where"`,
		"./p fifo 0600",
		"./s socket 0600",
	}
	if diff := cmp.Diff(want, undated(read(t, d, manifest.Options{}))); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

func TestHolesAreTold(t *testing.T) {
	d := t.TempDir()
	for name, islands := range map[string][]int64{"holes": nil, "islands": {1 << 20, 8 << 20}, "start": {0}} {
		f, err := os.Create(filepath.Join(d, name))
		must(t, err)
		for _, at := range islands {
			_, err := f.WriteAt(make([]byte, 4096), at)
			must(t, err)
		}
		must(t, f.Truncate(16<<20), f.Close())
	}
	file(t, d+"/dense", strings.Repeat("x", 10000), 0o644)
	var got []string
	for _, l := range read(t, d, manifest.Options{}) {
		if strings.Contains(l, " data") {
			got = append(got, l)
		}
	}
	want := []string{"./holes data", "./islands data 1048576+4096 8388608+4096", "./start data 0+4096"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("maps (-want +got):\n%s", diff)
	}
}

// One content has one digest, whatever part of its zeros is allocated.
func TestBlocksAreContent(t *testing.T) {
	d := t.TempDir()
	content := func(name, text string, zeros int) string {
		f, err := os.Create(filepath.Join(d, name))
		must(t, err)
		_, err = f.WriteAt(append([]byte(text), make([]byte, zeros)...), 1<<20)
		must(t, err, f.Truncate(8<<20), f.Close())
		for _, l := range undated(read(t, d, manifest.Options{})) {
			if _, sum, ok := strings.Cut(l, " blocks "); ok && strings.HasPrefix(l, "./"+name+" ") {
				return sum
			}
		}
		t.Fatalf("%s is not told by its blocks", name)
		return ""
	}
	a, b, c := content("a", "text", 0), content("b", "text", 1<<20), content("c", "other", 0)
	if a != b || a == c {
		t.Errorf("digests %s, %s of one content, %s of another", a, b, c)
	}
}

// A change of any one thing changes the picture, and taking it back restores it.
func TestEveryDifferenceShows(t *testing.T) {
	d := t.TempDir()
	f := d + "/f"
	at := time.Unix(1_000_000_000, 5)
	file(t, f, "content", 0o644)
	must(t, os.Chtimes(f, at, at))
	before := read(t, d, manifest.Options{})
	for name, c := range map[string]struct{ do, undo func() error }{
		"mode":    {func() error { return unix.Chmod(f, 0o600) }, func() error { return unix.Chmod(f, 0o644) }},
		"time":    {func() error { return os.Chtimes(f, at, at.Add(1)) }, func() error { return os.Chtimes(f, at, at) }},
		"xattr":   {func() error { return unix.Setxattr(f, "user.k", []byte("v\x00"), 0) }, func() error { return unix.Removexattr(f, "user.k") }},
		"content": {func() error { return os.WriteFile(f, []byte("CONTENT"), 0) }, func() error { return os.WriteFile(f, []byte("content"), 0) }},
		"a link outside": {
			func() error { return os.Link(f, filepath.Join(filepath.Dir(d), "other")) },
			func() error { return os.Remove(filepath.Join(filepath.Dir(d), "other")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, c.do(), os.Chtimes(d, at, at))
			if name != "time" {
				must(t, os.Chtimes(f, at, at))
			}
			if slices.Equal(before, read(t, d, manifest.Options{})) {
				t.Error("the picture does not show it")
			}
			must(t, c.undo(), os.Chtimes(f, at, at))
			got := read(t, d, manifest.Options{})
			if diff := cmp.Diff(before[1:], got[1:]); diff != "" {
				t.Errorf("after taking it back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInodesTellACopyFromTheOriginal(t *testing.T) {
	d := t.TempDir()
	file(t, d+"/f", "x", 0o644)
	at := time.Unix(1_000_000_000, 0)
	must(t, os.Chtimes(d+"/f", at, at), os.Chtimes(d, at, at))
	plain, exact := read(t, d, manifest.Options{}), read(t, d, manifest.Options{Inodes: true})
	file(t, d+"/g", "x", 0o644)
	must(t, os.Rename(d+"/g", d+"/f"), os.Chtimes(d+"/f", at, at), os.Chtimes(d, at, at))
	if diff := cmp.Diff(plain, read(t, d, manifest.Options{})); diff != "" {
		t.Errorf("a faithful copy is told apart (-want +got):\n%s", diff)
	}
	if slices.Equal(exact, read(t, d, manifest.Options{Inodes: true})) {
		t.Error("a copy is not told from the original")
	}
}

func TestSkippedEntriesAreLeftOut(t *testing.T) {
	d := t.TempDir()
	must(t, os.MkdirAll(d+"/.hidden/x", 0o755), os.MkdirAll(d+"/a/.hidden", 0o755))
	got := undated(read(t, d, manifest.Options{Skip: func(n string) bool { return n == ".hidden" }}))
	want := []string{"./a directory 0755", "./a/.hidden directory 0755"}
	if diff := cmp.Diff(want, got[1:]); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

// Deeper than PATH_MAX, where no path names anything any more.
func TestLongPaths(t *testing.T) {
	root := t.TempDir()
	dir, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	name := strings.Repeat("n", 255)
	for range 20 {
		must(t, unix.Mkdirat(dir, name, 0o755))
		next, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err, unix.Close(dir))
		dir = next
	}
	must(t, unix.Close(dir))
	lines := read(t, root, manifest.Options{})
	if len(lines) != 21 || len(lines[20]) < 5000 {
		t.Errorf("%d lines, the last %d bytes long", len(lines), len(lines[len(lines)-1]))
	}
}
