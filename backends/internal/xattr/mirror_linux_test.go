package xattr_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/xattr"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// xfs lists every ACL twice, by two names.
func TestListsOnceWhatXFSListsTwice(t *testing.T) {
	nstest.NewMount(t, nstest.Root)
	at := loopfs.Make(t, loopfs.XFS, 0)
	list := []byte{
		2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 5, 0, 9, 0, 0, 0,
		4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 1, 0, 255, 255, 255, 255,
	}
	for _, name := range []string{xattr.ACL, xattr.DefaultACL, "trusted.k"} {
		if err := unix.Setxattr(at, name, list, 0); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	got, err := xattr.Planned(int(dir.Fd()), "")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{xattr.ACL, xattr.DefaultACL, "trusted.k"}
	if d := cmp.Diff(want, slices.Sorted(maps.Keys(got))); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
}
