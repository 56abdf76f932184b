package rawfork

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func TestNamespaces(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.UserNS, nstest.NetNS)
	// At once: the children that the namespaces are taken from must not keep each
	// other alive.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			user, net, err := Namespaces(1<<31, 1<<31-1, true)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(user)
			defer unix.Close(net)
			again, err := NetIn(user)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(again)
			for _, fd := range []int{net, again} {
				owner, err := unix.IoctlRetInt(fd, unix.NS_GET_USERNS)
				if err != nil {
					t.Error(err)
					continue
				}
				var a, b unix.Stat_t
				if unix.Fstat(owner, &a) != nil || unix.Fstat(user, &b) != nil || a.Ino != b.Ino {
					t.Error("the network namespace has another owner")
				}
				unix.Close(owner)
			}
		})
	}
	wg.Wait()
	// Every child was reaped.
	b, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children")
	if err != nil || len(b) > 0 {
		t.Errorf("children %q, %v", b, err)
	}
}

func TestNamespacesThatCannotBe(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.UserNS)
	if _, _, err := Namespaces(1<<31, -1, false); err == nil {
		t.Error("a map of a negative size was taken")
	}
	if _, err := NetIn(int(os.Stdin.Fd())); err == nil {
		t.Error("entered what is no user namespace")
	}
}
