package hostfiles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// old is the time that every object of a test's host has before.
var old = time.Date(2021, 3, 4, 5, 6, 7, 123456789, time.UTC)

// fixture is a host below a directory and the contents that a plan wants.
type fixture struct {
	t      testing.TB
	dir    string
	host   *Host
	wanted contents
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	return fixtureAt(t, t.TempDir())
}

func fixtureAt(t testing.TB, dir string) *fixture {
	return &fixture{t: t, dir: dir, host: New(dir), wanted: contents{}}
}

// contents is a [backends.Wanted] in memory.
type contents map[string]string

func (c contents) Open(sum string) (io.ReadCloser, error) {
	s, ok := c[sum]
	if !ok {
		return nil, fmt.Errorf("content %s: %w", sum, fs.ErrNotExist)
	}
	return io.NopCloser(strings.NewReader(s)), nil
}

func (c contents) add(s string) string {
	sum := sha256.Sum256([]byte(s))
	h := hex.EncodeToString(sum[:])
	c[h] = s
	return h
}

func (f *fixture) path(p string) string { return filepath.Join(f.dir, p) }

// put makes what "file:CONTENT", "dir", "link:TARGET", "fifo" or "none" says.
func (f *fixture) put(p, what string) {
	f.t.Helper()
	kind, arg, _ := strings.Cut(what, ":")
	full := f.path(p)
	if kind != "none" {
		f.ok(os.MkdirAll(filepath.Dir(full), 0o755))
	}
	switch kind {
	case "file":
		f.ok(os.WriteFile(full, []byte(arg), 0o640))
	case "dir":
		f.ok(os.MkdirAll(full, 0o750))
	case "link":
		f.ok(os.Symlink(arg, full))
	case "fifo":
		f.ok(unix.Mkfifo(full, 0o600))
	}
}

// age gives everything on the host the old time, deepest first.
func (f *fixture) age() {
	f.t.Helper()
	ts := []unix.Timespec{unix.NsecToTimespec(old.UnixNano()), unix.NsecToTimespec(old.UnixNano())}
	f.walk(func(full string, _ fs.FileInfo) {
		f.ok(unix.UtimesNanoAt(unix.AT_FDCWD, full, ts, unix.AT_SYMLINK_NOFOLLOW))
	})
}

func (f *fixture) walk(visit func(full string, fi fs.FileInfo)) {
	f.t.Helper()
	f.ok(filepath.WalkDir(f.dir, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err == nil {
			visit(full, fi)
		}
		return err
	}))
}

// manifest renders everything about the host that can be told.
func (f *fixture) manifest() string {
	f.t.Helper()
	lines, err := manifest.Read(f.dir, manifest.Options{})
	f.ok(err)
	return strings.Join(lines, "\n") + "\n"
}

// xattrs returns all extended attributes of p itself.
func (f *fixture) xattrs(p string) map[string][]byte {
	f.t.Helper()
	fd, err := unix.Open(filepath.Dir(f.path(p)), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	f.ok(err)
	defer unix.Close(fd)
	all, err := xattr.All(fd, filepath.Base(p))
	f.ok(err)
	return all
}

func (f *fixture) ok(errs ...error) {
	f.t.Helper()
	for _, err := range errs {
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// same fails when two manifests differ.
func (f *fixture) same(what, want, got string) {
	f.t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		f.t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// entry makes a wanted entry of what put understands.
func (f *fixture) entry(what string) *change.Entry {
	kind, arg, _ := strings.Cut(what, ":")
	e := &change.Entry{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), MTime: old.Add(time.Hour).UnixNano()}
	switch kind {
	case "file":
		e.Type, e.Mode, e.Size, e.SHA256 = change.Regular, 0o604, int64(len(arg)), f.wanted.add(arg)
	case "dir":
		e.Type, e.Mode = change.Directory, 0o705
	case "link":
		e.Type, e.Mode, e.Target = change.Symlink, 0o777, change.Path(arg)
	case "fifo":
		e.Type, e.Mode = change.Fifo, 0o620
	case "none":
		return nil
	}
	return e
}

// change is the change from what the host has at p to what is wanted.
func (f *fixture) change(p, want string) change.Change {
	f.t.Helper()
	c := change.Change{Kind: change.KindFile, Path: change.Path(p), New: f.entry(want)}
	found, err := f.host.Observe(context.Background(), []change.Path{c.Path})
	f.ok(err)
	c.Old = found[0]
	switch {
	case c.Old == nil:
		c.Op = change.Added
	case c.New == nil:
		c.Op = change.Deleted
	case c.Old.Type != c.New.Type:
		c.Op = change.Replaced
	default:
		c.Op = change.Modified
	}
	return c
}

// swap runs a plan up to the end of its swap.
func (f *fixture) swap(cs []change.Change) []backends.Step {
	f.t.Helper()
	steps := f.stage(cs)
	f.ok(f.host.Swap(context.Background(), steps))
	return steps
}

func (f *fixture) swapAs(txn string, cs []change.Change) []backends.Step {
	f.t.Helper()
	steps := f.stageAs(txn, cs)
	f.ok(f.host.Swap(context.Background(), steps))
	return steps
}

func (f *fixture) stage(cs []change.Change) []backends.Step {
	f.t.Helper()
	return f.stageAs("apply-20260101-000000-test", cs)
}

func (f *fixture) stageAs(txn string, cs []change.Change) []backends.Step {
	f.t.Helper()
	ctx := context.Background()
	blockers, err := f.host.Preflight(ctx, cs)
	f.ok(err)
	if len(blockers) > 0 {
		f.t.Fatalf("blockers: %+v", blockers)
	}
	steps, err := f.host.Snapshot(ctx, txn, cs)
	f.ok(err)
	steps, err = f.host.Stage(ctx, steps, f.wanted)
	f.ok(err)
	return steps
}

func (f *fixture) archive(steps []backends.Step, dir string) error {
	f.t.Helper()
	wait, err := f.host.Archive(context.Background(), steps, dir)
	f.ok(err)
	return wait()
}

// back undoes and cleans, and wants nothing left over.
func (f *fixture) back(steps []backends.Step) {
	f.t.Helper()
	left, err := f.host.Undo(context.Background(), steps)
	f.ok(err)
	if len(left) > 0 {
		f.t.Fatalf("leftovers: %+v", left)
	}
	f.ok(f.host.Clean(context.Background(), steps, true))
}

func (f *fixture) read(p string) string {
	f.t.Helper()
	b, err := os.ReadFile(f.path(p))
	f.ok(err)
	return string(bytes.TrimSpace(b))
}
