package hostfiles

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// The hidden directory stands at the top of the mount, but never above a base
// that will do: an environment touches nothing outside its own.
func TestNothingIsHiddenAboveTheBase(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "srv/base/conf.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	add := []change.Change{{
		Kind: change.KindFile, Op: change.Added, Path: "/srv/base/conf.d/x",
		New: &change.Entry{Type: change.Regular, Mode: 0o644, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())},
	}}
	for _, tt := range []struct {
		name string
		base string
		mode os.FileMode // of the base
		want change.Path
	}{
		{"the whole host", "/", 0o755, "/.netsandbox-t"},
		{"a base of its own", "/srv/base", 0o755, "/srv/base/.netsandbox-t"},
		{"a base that others can write to", "/srv/base", 0o777, "/.netsandbox-t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.Chmod(filepath.Join(root, "srv/base"), tt.mode); err != nil {
				t.Fatal(err)
			}
			var h backends.Host = New(root)
			steps, err := h.(backends.Bounded).Within(tt.base).Snapshot(t.Context(), "t", add)
			if err != nil {
				t.Fatal(err)
			}
			if got := steps[0].Place.Dir; got != tt.want {
				t.Errorf("hidden at %s, want %s", got, tt.want)
			}
		})
	}
}
