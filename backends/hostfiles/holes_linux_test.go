package hostfiles

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// held returns the bytes that the filesystem has allocated to p.
func (f *fixture) held(p string) int64 {
	f.t.Helper()
	var st unix.Stat_t
	f.ok(unix.Lstat(f.path(p), &st))
	return st.Blocks * 512
}

// islands is a file of the given size with a few bytes here and there.
func islands(t testing.TB, path string, size int64, at ...int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, off := range at {
		if _, err := fmt.Fprintf(io.NewOffsetWriter(f, off), "island at %d", off); err != nil {
			t.Fatal(err)
		}
	}
}

// hashOf hashes a file without reading its holes.
func hashOf(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	if err := hashHoled(h, int(f.Fd()), fi.Size(), make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// files is a [backends.Wanted] of files that exist, which may have holes.
type files map[string]string

func (w files) Open(sum string) (io.ReadCloser, error) { return os.Open(w[sum]) }

// Two gigabytes of which a few blocks are data go through everything as that.
func TestHugeSparseFile(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	f := fixtureAt(t, newDisk(t, loopfs.Ext4)) // of 8 MiB
	f.put("srv", "dir")
	const size = 2 << 30
	islands(t, f.path("srv/disk"), size, 0, 1<<30, size-4096)
	wanted := filepath.Join(t.TempDir(), "wanted")
	islands(t, wanted, size, 12345, 700<<20)
	f.age()
	before, took := f.held("srv/disk"), time.Now()
	c := f.change("/srv/disk", "file:")
	c.New.Size, c.New.SHA256, c.New.Sparse = size, hashOf(t, wanted), true
	if !c.Old.Sparse || c.Old.Allocated != before {
		t.Fatalf("observed %+v", c.Old)
	}
	cs := []change.Change{c}
	blockers, err := f.host.Preflight(t.Context(), cs)
	f.ok(err)
	if len(blockers) > 0 {
		t.Fatalf("blockers %+v", blockers)
	}
	steps, err := f.host.Snapshot(t.Context(), "apply-1", cs)
	f.ok(err)
	second := filepath.Join(t.TempDir(), "second")
	f.ok(f.archive(steps, second))
	steps, err = f.host.Stage(t.Context(), steps, files{c.New.SHA256: wanted})
	f.ok(err)
	f.ok(f.host.Swap(t.Context(), steps))
	if got, was := f.held("srv/disk"), fixtureAt(t, filepath.Dir(wanted)).held("wanted"); got != was {
		t.Errorf("applied, it takes %d bytes; what is wanted takes %d", got, was)
	}
	f.ok(f.host.Clean(t.Context(), steps, false))
	if fi, err := os.Stat(filepath.Join(second, archiveName)); err != nil || fi.Size() > 1<<20 {
		t.Errorf("second copy: %v, %v", fi.Size(), err)
	}
	steps, err = f.host.Restore(t.Context(), steps, second)
	f.ok(err)
	f.back(steps)
	if got := f.held("srv/disk"); got != before {
		t.Errorf("taken back, it takes %d bytes, before %d", got, before)
	}
	t.Logf("2 GiB: apply, late undo: %v", time.Since(took))
}

// The same bytes are wanted with holes and without: each file is as wanted,
// whichever of them the frozen bytes were taken from.
func TestHolesAreTheFilesOwn(t *testing.T) {
	for _, from := range []string{"a file with holes", "a file without", "no file at all"} {
		t.Run(from, func(t *testing.T) {
			f := newFixture(t)
			content := "begin" + strings.Repeat("\x00", 1<<20) + "middle" + strings.Repeat("\x00", 1<<20)
			wanted := filepath.Join(t.TempDir(), "wanted")
			f.put("etc", "dir")
			holed, full := f.change("/etc/holed", "file:"+content), f.change("/etc/full", "file:"+content)
			holed.New.Sparse = true
			steps, err := f.host.Snapshot(t.Context(), "apply-1", []change.Change{holed, full})
			f.ok(err)
			var w interface {
				Open(string) (io.ReadCloser, error)
			} = files{full.New.SHA256: wanted}
			switch from {
			case "a file with holes":
				islands(t, wanted, int64(len(content)))
				g, err := os.OpenFile(wanted, os.O_WRONLY, 0)
				f.ok(err)
				_, err = g.WriteAt([]byte("begin"), 0)
				f.ok(err)
				_, err = g.WriteAt([]byte("middle"), 5+1<<20)
				f.ok(err, g.Close())
			case "a file without":
				f.ok(os.WriteFile(wanted, []byte(content), 0o600))
			default:
				w = f.wanted
			}
			steps, err = f.host.Stage(t.Context(), steps, w)
			f.ok(err)
			f.ok(f.host.Swap(t.Context(), steps))
			if got := f.held("etc/holed"); got > 64<<10 {
				t.Errorf("the file with holes takes %d bytes", got)
			}
			if got := f.held("etc/full"); got < int64(len(content)) {
				t.Errorf("the file without takes %d bytes", got)
			}
			left, err := f.host.Verify(t.Context(), steps)
			f.ok(err)
			if len(left) > 0 {
				t.Errorf("not as wanted: %s", sprint(left))
			}
			f.back(steps)
		})
	}
}

// A person can unpack the second copy with nothing of ours: GNU tar makes the
// holes, the second names and the fifo. (A default ACL it sets before it fills the
// directory, so what is in it gets one too; our own undo does not.)
func TestSecondCopyByHand(t *testing.T) {
	nstest.NewMount(t, nstest.Root, nstest.Tool("tar"))
	for _, kind := range []string{"sparse", "hole", "pair", "acl", "attribute", "capability", "setuid", "fifo"} {
		m := newModel(t, newDisk(t, loopfs.Ext4), kind, "nothing")
		want := m.picture(false)
		second, out := filepath.Join(t.TempDir(), "second"), filepath.Join(m.dir, "../out")
		m.ok(os.Mkdir(out, 0o755))
		m.ok(m.archive(m.staged("apply-1"), second))
		cmd := exec.Command("tar", "-xpf", filepath.Join(second, archiveName), "-C", out, "--xattrs", "--xattrs-include=*", "--numeric-owner")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", kind, err, text)
		}
		byHand := &model{fixture: fixtureAt(t, out), name: kind}
		m.ok(os.Chmod(filepath.Join(out, "etc"), 0o755), os.Chmod(filepath.Join(out, "etc/x"), 0o755))
		below := func(lines []string) (some []string) {
			for _, l := range lines {
				if strings.HasPrefix(l, "./etc/x/") {
					some = append(some, l)
				}
			}
			return some
		}
		m.equal("unpacked", below(want), below(byHand.picture(false)))
	}
}

// More holes than a header may list: the smallest are filled, the bytes are the
// same.
func TestMoreHolesThanAHeaderHolds(t *testing.T) {
	var data []extent
	for i := range int64(3 * mostExtents) {
		data = append(data, extent{i * 3 * grain, grain + i%7*grain/7})
	}
	size := data[len(data)-1].end() + 5
	kept := coalesce(slices.Clone(data), mostExtents)
	if len(kept) > mostExtents || kept[0].off != 0 || kept[len(kept)-1].end() != data[len(data)-1].end() {
		t.Fatalf("%d extents, first %v", len(kept), kept[0])
	}
	hdr := &tar.Header{Name: "x", Size: size, Mode: 0o600, Uid: 1 << 30, Gid: 7, ModTime: old, PAXRecords: map[string]string{"SCHILY.xattr.user.k": "v=\n\x00"}}
	head, stored := sparseHeader(hdr, kept)
	var b bytes.Buffer
	b.Write(head)
	b.Write(bytes.Repeat([]byte("d"), int(stored+padding(stored))))
	got, err := tar.NewReader(bufio.NewReader(&b)).Next()
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "x" || got.Size != size || got.Uid != 1<<30 || got.Gid != 7 || !got.ModTime.Equal(old) || got.PAXRecords["SCHILY.xattr.user.k"] != "v=\n\x00" {
		t.Errorf("header %+v", got)
	}
	back, err := dataOf(got)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(kept, back, cmp.AllowUnexported(extent{})); d != "" {
		t.Errorf("map (-want +got):\n%s", d)
	}
}

// Times before 1970 and with a fraction.
func TestPaxTime(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0.000000000", 1_500_000_000: "1.500000000", -1: "-0.000000001", -1_500_000_000: "-1.500000000", -2_000_000_000: "-2.000000000",
	} {
		if got := paxTime(time.Unix(0, ns)); got != want {
			t.Errorf("%d ns is %s, want %s", ns, got, want)
		}
	}
}

// A file that is written while it is archived is no second copy.
func TestArchiveOfAChangedSparseFileIsRefused(t *testing.T) {
	for name, upset := range map[string]func(f *fixture){
		"longer":           func(f *fixture) { f.ok(os.Truncate(f.path("etc/a"), 9<<20)) },
		"shorter":          func(f *fixture) { f.ok(os.Truncate(f.path("etc/a"), 1<<20)) },
		"a hole is filled": func(f *fixture) { islands(f.t, f.path("etc/a"), 8<<20, 3<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.put("etc", "dir")
			islands(t, f.path("etc/a"), 8<<20, 0)
			steps := f.stage([]change.Change{f.change("/etc/a", "file:new")})
			upset(f)
			wait, err := f.host.Archive(context.Background(), steps, filepath.Join(t.TempDir(), "second"))
			f.ok(err)
			if err := wait(); err == nil || !strings.Contains(err.Error(), "host changed") {
				t.Errorf("archive: %v", err)
			}
		})
	}
}
