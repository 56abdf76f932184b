package hostfiles

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// newExt4 mounts a small ext4 with a journal, as hosts have it, in a mount
// namespace of the test.
func newExt4(t testing.TB) string {
	t.Helper()
	nstest.NewMount(t, nstest.Tool("mkfs.ext4"))
	image, at := filepath.Join(t.TempDir(), "image"), t.TempDir()
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(16 << 20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, c := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, at}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	return at
}
