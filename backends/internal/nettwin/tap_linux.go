package nettwin

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// queueLen is the transmit queue of a TAP. With the kernel's default of 1000 the
// ring is the one place of the whole path that drops: 47 000 packets in an
// upload of 100 flows, none with this.
const queueLen = 10000

// openTAP makes a TAP, or for a link without a link layer a TUN, with the name
// and if it is free the number of l. It must run in the twin's namespace. The
// interface lives as long as the file.
func openTAP(l rtnl.Link) (*os.File, error) {
	// Blocking: a non-blocking descriptor would join this process's poller, and
	// every frame would wake it for nothing. The relay makes it non-blocking.
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	f := os.NewFile(uintptr(fd), "tap "+l.Name)
	if err := setupTAP(fd, l); err != nil {
		f.Close()
		return nil, fmt.Errorf("make tap %s: %w", l.Name, err)
	}
	return f, nil
}

func setupTAP(fd int, l rtnl.Link) error {
	// The same number keeps scoped addresses (fe80::1%2) and the numbers in
	// tools' output as on the host. It may be taken in the twin; then any will do.
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, l.Index); err != nil {
		return fmt.Errorf("set number %d: %w", l.Index, err)
	}
	req, err := unix.NewIfreq(l.Name)
	if err != nil {
		return err
	}
	mode := uint16(unix.IFF_TAP)
	if bare(l) {
		mode = unix.IFF_TUN
	}
	req.SetUint16(mode | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	if err == unix.EBUSY || err == unix.EEXIST {
		if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, 0); err != nil {
			return fmt.Errorf("clear number: %w", err)
		}
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return err
	}
	// Segments of up to 64 KiB cross the TAP in one piece: five times the speed
	// of 1500-byte frames. Not USO: the relay does not split datagrams.
	return ioctl(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
}

// closeTAPs removes the links, all at once: the kernel waits for every processor
// before it lets go of one, and a hundred one by one took 3 s.
func closeTAPs(taps []*os.File) error {
	errs := make([]error, len(taps))
	var wg sync.WaitGroup
	for i, f := range taps {
		wg.Go(func() { errs[i] = f.Close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// setCarrier says whether the cable is plugged in. Kernels before 4.20 lack it,
// and then it always is.
func setCarrier(tap *os.File, on bool) {
	v := 0
	if on {
		v = 1
	}
	rc, err := tap.SyscallConn() // Fd would make the descriptor blocking
	if err == nil {
		_ = rc.Control(func(fd uintptr) { _ = unix.IoctlSetPointerInt(int(fd), unix.TUNSETCARRIER, v) })
	}
}

func ioctl(fd int, req uint, arg uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), arg); e != 0 {
		return e
	}
	return nil
}
