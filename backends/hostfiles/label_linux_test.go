package hostfiles

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestLabelled: where no security module rules, root may set a label as it may
// any attribute, so that a labelled place can be made.
func TestLabelled(t *testing.T) {
	nstest.New(t, nstest.Root)
	dir := t.TempDir()
	h := New("/").Within(dir).(*Host)
	if h.Labelled() {
		t.Fatalf("%s is said to be labelled", dir)
	}
	if err := unix.Setxattr(dir, "security.selinux", []byte("system_u:object_r:etc_t:s0\x00"), 0); err != nil {
		t.Fatal(err)
	}
	if !h.Labelled() {
		t.Error("the label of the base is not seen")
	}
}
