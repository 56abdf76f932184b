package plan

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// A full disk leaves nothing behind and loses no older plan.
func TestFreezeOnAFullDisk(t *testing.T) {
	nstest.NewMount(t)
	state := t.TempDir()
	must(t, unix.Mount("tmpfs", state, "tmpfs", 0, "size=1m"))
	s, small := NewStore(state), sample()
	must(t, s.Freeze(t.Context(), small, sampleLayer(t)))

	big := sample()
	content := bytes.Repeat([]byte("x"), 4<<20)
	name := filepath.Join(t.TempDir(), "b")
	must(t, os.WriteFile(name, content, 0o600))
	big.Changes[1].New.SHA256, big.Changes[1].New.Size = hashOf(string(content)), int64(len(content))
	layer := sampleLayer(t)
	err := s.Freeze(t.Context(), big, func(p change.Path) (*os.File, error) {
		if p == "/etc/b" {
			return os.Open(name)
		}
		return layer(p)
	})
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("error %v, want %v", err, unix.ENOSPC)
	}
	onlyPublished(t, s)
	f, err := s.Open(small.Digest())
	must(t, err)
	must(t, f.Verify(t.Context()))
}
