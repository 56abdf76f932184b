package deadfs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) {
	Main() // this binary is also what looks
	nstest.Main(m)
}

func TestCheck(t *testing.T) {
	nstest.NewMount(t)
	if err := Check(t.TempDir()); err != nil {
		t.Errorf("a directory that answers: %v", err)
	}
	if err := Check("/no/such"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("one that is not there: %v", err)
	}
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close() // which ends every wait
	dir := t.TempDir()
	if err := unix.Mount("x", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	if err := Check(dir); !errors.Is(err, ErrSilent) {
		t.Errorf("one that does not answer: %v", err)
	}
	if took := time.Since(started); took < patience || took > 3*patience {
		t.Errorf("it took %v", took)
	}
	started = time.Now()
	if err := Check(dir); !errors.Is(err, ErrSilent) || time.Since(started) > patience/2 {
		t.Errorf("asked again: %v after %v", err, time.Since(started))
	}
	Remember("/proc") // as if somebody else had asked
	if err := Check("/proc"); !errors.Is(err, ErrSilent) {
		t.Errorf("one that gave somebody else no answer: %v", err)
	}
	was := silence
	defer func() { silence = was }()
	silence = 0
	dev.Close()
	if err := Check(dir); err == nil || errors.Is(err, ErrSilent) || !strings.Contains(err.Error(), "not connected") {
		t.Errorf("after its server ended: %v", err)
	}
	if err := Check("/proc"); err != nil {
		t.Errorf("one that answers again: %v", err)
	}
}
