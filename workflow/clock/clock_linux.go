package clock

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bootID is read once: it cannot change while a process of that boot lives.
var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	id := strings.TrimSpace(string(b))
	if id == "" {
		return "", fmt.Errorf("read boot id: it is empty")
	}
	return id, nil
})

// Now returns the present instant of this boot.
func Now() (Instant, error) {
	id, err := bootID()
	if err != nil {
		return Instant{}, err
	}
	d, err := Boottime()
	if err != nil {
		return Instant{}, err
	}
	return Instant{BootID: id, Boottime: d, At: time.Now().UTC()}, nil
}

// Boottime returns CLOCK_BOOTTIME.
func Boottime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read boot time: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
