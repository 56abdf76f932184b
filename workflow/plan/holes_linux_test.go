package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// holed makes a file of 64 MiB with little in it, one block of which is zeros.
func holed(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	must(t, f.Truncate(64<<20))
	for off, b := range map[int64][]byte{0: []byte("begin"), 8 << 20: make([]byte, 4096), 40<<20 + 77: []byte("middle")} {
		_, err := f.WriteAt(b, off)
		must(t, err)
	}
	must(t, f.Close())
}

// islands lists where a file has data.
func islands(t *testing.T, path string) (all [][2]int64) {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	st, err := f.Stat()
	must(t, err)
	for at := int64(0); at < st.Size(); {
		start, end, err := nextData(f, at, st.Size())
		must(t, err)
		if start < end {
			all = append(all, [2]int64{start, end})
		}
		at = end
	}
	return all
}

// A file with holes is frozen with just these, copied or cloned, though another
// file wants the same bytes without any and comes first.
func TestFreezeKeepsHoles(t *testing.T) {
	for _, disk := range []loopfs.Kind{"tmpfs", loopfs.Ext4, loopfs.XFS, loopfs.Btrfs} {
		t.Run(string(disk), func(t *testing.T) {
			nstest.NewMount(t, nstest.Root)
			dir := t.TempDir()
			if disk == "tmpfs" {
				must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
			} else {
				dir = loopfs.Make(t, disk, 256<<20)
			}
			wanted, dense := filepath.Join(dir, "holed"), filepath.Join(dir, "dense")
			holed(t, wanted)
			content, err := os.ReadFile(wanted)
			must(t, err)
			must(t, os.WriteFile(dense, content, 0o600))
			sum := sha256.Sum256(content)
			p := sample()
			for i := range 2 {
				p.Changes[i].New.SHA256, p.Changes[i].New.Size = hex.EncodeToString(sum[:]), 64<<20
			}
			p.Changes[1].New.Sparse = true
			s := NewStore(filepath.Join(dir, "state"))
			must(t, s.Freeze(t.Context(), p, func(p change.Path) (*os.File, error) {
				return os.Open(map[change.Path]string{"/etc/a": dense, "/etc/b": wanted}[p])
			}))
			f, err := s.Open(p.Digest())
			must(t, err)
			must(t, f.Verify(t.Context()))
			b, err := f.Open(p.Changes[0].New.SHA256)
			must(t, err)
			defer b.Close()
			if n, err := io.Copy(io.Discard, b); err != nil || n != 64<<20 {
				t.Errorf("%d bytes, %v", n, err)
			}
			if d := cmp.Diff(islands(t, wanted), islands(t, f.blob(p.Changes[0].New.SHA256))); d != "" {
				t.Errorf("data (-wanted +frozen):\n%s", d)
			}
		})
	}
}
