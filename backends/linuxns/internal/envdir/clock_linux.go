package envdir

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/regular"
)

// margin is subtracted from a stamp. A stamp is the change time of a file, and
// every change time of this kernel comes from the same clock: coarse before Linux
// 6.13, where two within a tick are equal and equal is not before, and since then
// one that never goes behind what it gave out (multigrain timestamps). So what
// was changed after the stamp is dated no earlier, but for a step of the clock that
// is too small to be noticed, and for the error of noticing. A larger margin would
// doubt what a person or a script did right before a command.
const margin = maxStep + maxStep/10

// maxStep is how far the wall clock may move backwards against the boot clock
// before times of files stop meaning anything. Both are slewed alike, so they
// come apart by steps only, and by what lies between two readings.
const maxStep = time.Millisecond

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
	var st unix.Stat_t
	// Twice: the first time may be that of the last tick. One that was read, and
	// that the tick has not left behind, is followed by an exact one (Linux 6.13).
	for range 2 {
		if _, err := f.WriteAt([]byte{'\n'}, 0); err != nil {
			return Clock{}, fmt.Errorf("write stamp: %w", err)
		}
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return Clock{}, fmt.Errorf("read stamp: %w", err)
		}
	}
	off, err := offset()
	if err != nil {
		return Clock{}, err
	}
	return Clock{Time: st.Ctim.Nano() - int64(margin), Offset: off, BootID: BootID()}, nil
}

// WentBack reports whether the wall clock was set back since c was taken. That
// it was set before this boot, while nobody looked, cannot be excluded.
func (c Clock) WentBack() (bool, error) {
	if c.Stepped || c.BootID != BootID() {
		return true, nil
	}
	now, err := offset()
	if err != nil {
		return false, err
	}
	return c.Offset-now > int64(maxStep), nil
}

// offset is CLOCK_REALTIME minus CLOCK_BOOTTIME. Who is interrupted between the
// two readings tries again; the closest readings stand.
func offset() (int64, error) {
	var best, width int64
	for try := range 10 {
		var before, real, after unix.Timespec
		if err := errors.Join(
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &before),
			unix.ClockGettime(unix.CLOCK_REALTIME, &real),
			unix.ClockGettime(unix.CLOCK_BOOTTIME, &after),
		); err != nil {
			return 0, fmt.Errorf("read clock: %w", err)
		}
		if w := after.Nano() - before.Nano(); try == 0 || w < width {
			width, best = w, real.Nano()-before.Nano()-w/2
		}
		if width < int64(maxStep)/20 {
			break
		}
	}
	return best, nil
}
