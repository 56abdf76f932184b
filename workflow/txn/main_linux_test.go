package txn

import (
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

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/hostfiles"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
)

func TestMain(m *testing.M) {
	faultfs.Main()
	if os.Getenv(victimEnv) != "" {
		if err := victim(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	nstest.Main(m)
}

// world is a small host, a plan for it, and a place for transactions.
type world struct {
	t      testing.TB
	root   string // the host
	dir    string // the transactions
	wanted contents
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

// old is the time that every object of the host has before.
var old = time.Date(2020, 2, 3, 4, 5, 6, 987654321, time.UTC)

// hostFiles is what stands on the host before: path and content, "/" for a
// directory, "-> X" for a symlink.
var hostFiles = [][2]string{
	{"etc/app/conf", "mode = old\n"},
	{"etc/app/gone", "to be deleted\n"},
	{"etc/app/link", "-> conf"},
	{"etc/app/tree/a", "a\n"},
	{"etc/app/tree/b/c", "c\n"},
	{"etc/app/becomes-dir", "a file\n"},
	{"etc/mode/", ""},
	{"srv/bystander", "not in the plan\n"},
}

// wantedFiles is what the plan makes of it, in the same words; "-" deletes.
var wantedFiles = [][2]string{
	{"/etc/app/conf", "mode = new\n"},
	{"/etc/app/gone", "-"},
	{"/etc/app/link", "-> fresh"},
	{"/etc/app/tree", "-"},
	{"/etc/app/tree/a", "-"},
	{"/etc/app/tree/b", "-"},
	{"/etc/app/tree/b/c", "-"},
	{"/etc/app/becomes-dir", "/"},
	{"/etc/app/becomes-dir/x", "inside\n"},
	{"/etc/mode", "/"},
	{"/srv/new", "/"},
	{"/srv/new/deep", "/"},
	{"/srv/new/deep/file", "new file\n"},
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldAt(t, t.TempDir())
}

func newWorldAt(t testing.TB, at string) *world {
	t.Helper()
	return newWorldIn(t, filepath.Join(at, "host"), filepath.Join(at, "txn"))
}

func newWorldIn(t testing.TB, root, dir string) *world {
	t.Helper()
	w := &world{t: t, root: root, dir: dir, wanted: contents{}}
	w.ok(os.MkdirAll(w.dir, 0o700))
	w.ok(os.MkdirAll(w.root, 0o755))
	for _, f := range hostFiles {
		w.put(f[0], f[1])
	}
	w.age()
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) put(p, what string) {
	w.t.Helper()
	full := filepath.Join(w.root, p)
	w.ok(os.MkdirAll(filepath.Dir(full), 0o755))
	switch target, link := strings.CutPrefix(what, "-> "); {
	case strings.HasSuffix(p, "/"):
		w.ok(os.MkdirAll(full, 0o755))
	case link:
		w.ok(os.Symlink(target, full))
	default:
		w.ok(os.WriteFile(full, []byte(what), 0o640))
	}
}

// age gives everything on the host the old time.
func (w *world) age() {
	w.t.Helper()
	ts := []unix.Timespec{unix.NsecToTimespec(old.UnixNano()), unix.NsecToTimespec(old.UnixNano())}
	w.ok(filepath.WalkDir(w.root, func(full string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, full, ts, unix.AT_SYMLINK_NOFOLLOW)
	}))
}

// manifest renders the host: bytes, mode, owner, modification time, target.
func (w *world) manifest() string {
	w.t.Helper()
	text, err := manifest(w.root)
	w.ok(err)
	return text
}

func manifest(root string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(root, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var u unix.Stat_t
		if err := unix.Lstat(full, &u); err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %v %o %d:%d %d.%09d", full[len(root):], d.Type(), u.Mode, u.Uid, u.Gid, u.Mtim.Sec, u.Mtim.Nsec)
		switch {
		case d.Type().IsRegular():
			c, err := os.ReadFile(full)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", c)
		case d.Type()&fs.ModeSymlink != 0:
			l, err := os.Readlink(full)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " -> %q", l)
		}
		b.WriteByte('\n')
		return nil
	})
	return b.String(), err
}

func (w *world) host() *hostfiles.Host { return hostfiles.New(w.root) }

// plan makes the changes from what the host has to what files say.
func (w *world) plan(files [][2]string) []change.Change {
	w.t.Helper()
	var cs []change.Change
	for _, f := range files {
		c, err := planOne(w.host(), w.wanted, f[0], f[1])
		w.ok(err)
		cs = append(cs, c)
	}
	return cs
}

func planOne(host *hostfiles.Host, wanted contents, p, what string) (change.Change, error) {
	c := change.Change{Kind: change.KindFile, Op: change.Modified, Path: change.Path(p)}
	found, err := host.Observe(context.Background(), []change.Path{c.Path})
	if err != nil {
		return c, err
	}
	if c.Old = found[0]; c.Old == nil {
		c.Op = change.Added
	}
	e := &change.Entry{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), MTime: old.Add(time.Minute).UnixNano()}
	switch target, link := strings.CutPrefix(what, "-> "); {
	case what == "-":
		c.Op = change.Deleted
		return c, nil
	case what == "/":
		e.Type, e.Mode = change.Directory, 0o711
	case link:
		e.Type, e.Mode, e.Target = change.Symlink, 0o777, change.Path(target)
	default:
		e.Type, e.Mode, e.Size, e.SHA256 = change.Regular, 0o600, int64(len(what)), wanted.add(what)
	}
	if c.Old != nil && c.Old.Type != e.Type {
		c.Op = change.Replaced
	}
	c.New = e
	return c, nil
}

// begin creates and prepares a transaction for the whole plan.
func (w *world) begin() *Txn {
	w.t.Helper()
	return w.beginWith(w.plan(wantedFiles))
}

func (w *world) beginWith(cs []change.Change) *Txn {
	w.t.Helper()
	t, err := Create(w.dir, Header{Env: "demo", Cycle: 1, Plan: change.Digest(cs), BootID: "boot-1"})
	w.ok(err)
	w.t.Cleanup(func() { t.Close() })
	w.ok(t.Prepare(context.Background(), w.host(), cs))
	return t
}

// trial brings a transaction to the trial.
func (w *world) trial(t *Txn) *Txn {
	w.t.Helper()
	w.ok(t.Arm(Keeper{PID: os.Getpid()}))
	w.ok(t.Stage(context.Background(), w.host(), w.wanted))
	w.ok(t.Swap(context.Background(), w.host()))
	return t
}
