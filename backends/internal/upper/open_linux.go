package upper

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// openDir opens a child directory for reading. It follows nothing and stays on
// the mount; reading leaves no access time.
func openDir(dir int, name string) (int, error) {
	return openDirWithin(dir, name, unix.RESOLVE_NO_XDEV)
}

// openDirWithin is openDir for a directory that may be bound on itself, which is
// another mount of the same place.
func openDirWithin(dir int, name string, resolve uint64) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NOATIME,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | resolve,
	}
	fd, err := openat2(dir, name, how)
	if errors.Is(err, unix.EPERM) { // O_NOATIME is for the owner and root
		how.Flags &^= unix.O_NOATIME
		fd, err = openat2(dir, name, how)
	}
	if err != nil {
		return -1, fmt.Errorf("open directory %s: %w", change.Escape(name), err)
	}
	return fd, nil
}

// openFile opens a regular file for reading, under the same rules. O_NONBLOCK
// keeps a FIFO that took the file's place from blocking us.
func openFile(dir int, name string) (int, error) {
	how := &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | unix.O_NOATIME,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := openat2(dir, name, how)
	if errors.Is(err, unix.EPERM) {
		how.Flags &^= unix.O_NOATIME
		fd, err = openat2(dir, name, how)
	}
	return fd, err
}

// openat2 repeats what the kernel asks to be repeated: EAGAIN says that a rename
// raced with the check that the path stays beneath.
func openat2(dir int, name string, how *unix.OpenHow) (int, error) {
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dir, name, how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) && try < 64 {
			continue
		}
		return fd, err
	}
}

// names lists a directory, sorted by bytes.
func names(dir int) ([]string, error) {
	var all []string
	err := entries(dir, 32<<10, func(some []string) bool {
		all = append(all, some...)
		return true
	})
	return sorted(all), err
}

// empty reports a directory without entries. It reads no further than the first:
// whoever asks after each of many removals would read them all each time.
func empty(dir int) (bool, error) {
	none := true
	err := entries(dir, 1<<10, func(some []string) bool {
		none = len(some) == 0
		return none
	})
	return none, err
}

// entries hands the names in a directory over as they are read, until more wants
// no more.
func entries(dir, size int, more func([]string) bool) error {
	if _, err := unix.Seek(dir, 0, 0); err != nil {
		return fmt.Errorf("rewind directory: %w", err)
	}
	buf := make([]byte, size)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read directory: %w", err)
		}
		if n == 0 {
			return nil
		}
		_, _, some := unix.ParseDirent(buf[:n], -1, nil)
		if !more(some) {
			return nil
		}
	}
}
