//go:build !linux

package loopfs

import (
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// Make skips the test.
func Make(t testing.TB, k Kind, _ int64, _ ...Options) string {
	t.Helper()
	nstest.Require(t, nstest.Root)
	return ""
}

// Image skips the test.
func Image(t testing.TB, k Kind, size int64, o ...Options) string { return Make(t, k, size, o...) }

// Mount skips the test.
func Mount(t testing.TB, k Kind, _ string, o ...Options) string { return Make(t, k, 0, o...) }
