package rtnl

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// TestDumpOfAFamilyThatTheKernelLacks stands for a kernel without IPv6: no kernel
// that this is built for has DECnet, and each answers for it as for any it lacks.
func TestDumpOfAFamilyThatTheKernelLacks(t *testing.T) {
	ns := nstest.New(t)
	c, err := Dial(int(ns.Net().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, tc := range map[string]struct {
		typ  uint16
		size int
	}{
		"routes": {unix.RTM_GETROUTE, unix.SizeofRtMsg}, // the kernel gives those of all families
		"rules":  {unix.RTM_GETRULE, SizeofRuleHdr},     // EAFNOSUPPORT
	} {
		head := make([]byte, tc.size)
		head[0] = unix.AF_INET
		have, err := c.Dump(tc.typ, head)
		if err != nil || len(have) == 0 {
			t.Errorf("%s of IPv4: %d, %v; want some", name, len(have), err)
		}
		head[0] = unix.AF_DECnet
		if got, err := c.Dump(tc.typ, head); err != nil || len(got) > 0 {
			t.Errorf("%s of a family that is not: %d, %v; want none", name, len(got), err)
		}
	}
}
