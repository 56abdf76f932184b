package netns

import (
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func ino(t *testing.T, f *os.File) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// TestDoLeavesTheCaller enters two namespaces from many goroutines at once: each
// sees its own and the caller keeps its own.
func TestDoLeavesTheCaller(t *testing.T) {
	nstest.New(t)
	home, err := Current()
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	var others []*os.File
	for range 2 {
		f, err := New()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		others = append(others, f)
	}
	if ino(t, others[0]) == ino(t, others[1]) || ino(t, others[0]) == ino(t, home) {
		t.Error("a new namespace is an old one")
	}
	var wg sync.WaitGroup
	for i := range 40 {
		want := others[i%2]
		wg.Go(func() {
			err := Do(int(want.Fd()), func() error {
				f, err := Current()
				if err != nil {
					return err
				}
				defer f.Close()
				if ino(t, f) != ino(t, want) {
					return errors.New("is in another namespace")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	now, err := Current()
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	if ino(t, now) != ino(t, home) {
		t.Error("the caller was moved")
	}
}

func TestDoReportsABadDescriptor(t *testing.T) {
	called := false
	err := Do(-1, func() error { called = true; return nil })
	if !errors.Is(err, unix.EBADF) || called {
		t.Errorf("got %v, called %v; want EBADF and no call", err, called)
	}
}
