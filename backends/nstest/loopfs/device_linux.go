package loopfs

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// attach gives the image a loop device.
func attach(image string, readOnly bool) (*os.File, error) {
	mode := os.O_RDWR
	if readOnly {
		mode = os.O_RDONLY
	}
	f, err := os.OpenFile(image, mode, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Attach(f, readOnly)
}

// Attach gives an open image a loop device, which is freed with its last user,
// and returns it open.
func Attach(image *os.File, readOnly bool) (*os.File, error) {
	mode, flags := os.O_RDWR, uint32(unix.LO_FLAGS_AUTOCLEAR)
	if readOnly {
		mode, flags = os.O_RDONLY, flags|unix.LO_FLAGS_READ_ONLY
	}
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	for {
		n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), mode, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{
			Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: flags},
		})
		if err == nil {
			return dev, nil
		}
		dev.Close()
		// Free is not reserved: another process was faster.
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("configure loop device: %w", err)
		}
	}
}

// backs reports whether the device is attached to the image. Afterwards the
// number may belong to somebody else's.
func backs(device, image string) (bool, error) {
	var st unix.Stat_t
	if err := unix.Stat(image, &st); err != nil {
		return false, err
	}
	dev, err := os.Open(device)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dev.Close()
	info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask %s: %w", device, err)
	}
	return info.Inode == st.Ino && info.Device == st.Dev, nil
}
