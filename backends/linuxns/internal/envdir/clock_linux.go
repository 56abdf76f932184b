package envdir

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/regular"
)

// margin is subtracted from a stamp: the ctime of a file comes from the
// kernel's coarse clock and was measured up to 2 ms behind a reading of
// CLOCK_REALTIME taken before the write; a tick may be 10 ms.
const margin = 10 * time.Millisecond

// maxStep is how far the wall clock may move backwards against the boot clock
// before times of files stop meaning anything.
const maxStep = time.Second

// Clock is a moment comparable with the ctime of files on the state filesystem.
type Clock struct {
	// Time is nanoseconds since 1970, on the clock that stamps files.
	Time int64 `json:"time"`
	// Offset is CLOCK_REALTIME minus CLOCK_BOOTTIME at that moment; a step of the
	// wall clock shows as a change of it.
	Offset int64  `json:"offset"`
	BootID string `json:"boot_id"`
	// Stepped records that the wall clock was seen to go backwards, which makes
	// every comparison by time uncertain for good.
	Stepped bool `json:"stepped,omitempty"`
}

// Stamp returns the present moment as the filesystem sees it.
func (d Dir) Stamp() (Clock, error) {
	f, err := regular.Open(d.Path(StampFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return Clock{}, fmt.Errorf("open stamp: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{'\n'}, 0); err != nil {
		return Clock{}, fmt.Errorf("write stamp: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Clock{}, fmt.Errorf("read stamp: %w", err)
	}
	off, err := offset()
	if err != nil {
		return Clock{}, err
	}
	return Clock{Time: st.Ctim.Nano() - int64(margin), Offset: off, BootID: BootID()}, nil
}

// WentBack reports whether the wall clock was set back since c was taken.
func (c Clock) WentBack() (bool, error) {
	if c.Stepped {
		return true, nil
	}
	if c.BootID != BootID() { // offsets of two boots do not compare
		return false, nil
	}
	now, err := offset()
	if err != nil {
		return false, err
	}
	return c.Offset-now > int64(maxStep), nil
}

func offset() (int64, error) {
	var real, boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &real); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return real.Nano() - boot.Nano(), nil
}
