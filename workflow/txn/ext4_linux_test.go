package txn

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// loopExt4 mounts an ext4 of its own, journaled as hosts have it, in a mount
// namespace of the test.
func loopExt4(t testing.TB, size string) string {
	t.Helper()
	nstest.NewMount(t, nstest.Tool("mkfs.ext4"))
	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	for _, c := range [][]string{
		{"truncate", "-s", size, image},
		{"mkfs.ext4", "-q", "-F", "-i", "8192", image},
		{"mount", "-o", "loop", image, at},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	return at
}
