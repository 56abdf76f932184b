package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// create makes one object and returns what it is. A directory is left
// accessible to us and gets its metadata when it has been filled.
func create(dir int, name string, e *change.Entry, xattrs map[string][]byte, content io.Reader, buf []byte) (*node, error) {
	var err error
	switch e.Type {
	case change.Directory:
		if err = unix.Mkdirat(dir, name, 0o700); err != nil {
			err = os.NewSyscallError("mkdirat", err)
		}
	case change.Symlink:
		if err = unix.Symlinkat(string(e.Target), dir, name); err != nil {
			return nil, os.NewSyscallError("symlinkat", err)
		}
		err = attributeLink(dir, name, e, xattrs)
	case change.Regular:
		return createFile(dir, name, e, xattrs, content, buf)
	default:
		err = fmt.Errorf("%w: file type %q", errors.ErrUnsupported, e.Type)
	}
	if err != nil {
		return nil, err
	}
	return stat(dir, name)
}

// createFile makes one regular file. The hidden directory keeps others from it
// from the first moment, so it may have its mode at once; what open(2) could not
// give it, because of the umask or a setgid directory, is set afterwards.
func createFile(dir int, name string, e *change.Entry, xattrs map[string][]byte, content io.Reader, buf []byte) (*node, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, e.Mode&0o777)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	if err := fill(fd, content, e, buf); err != nil {
		return nil, err
	}
	n, err := stat(fd, "")
	if err != nil {
		return nil, err
	}
	if len(xattrs) == 0 && n.mode == e.Mode && n.uid == e.UID && n.gid == e.GID {
		return n, setTime(fd, "", e.MTime)
	}
	return n, attribute(fd, e, xattrs)
}

// fill writes the content and proves on the way that it is what was planned.
func fill(fd int, src io.Reader, e *change.Entry, buf []byte) error {
	h := sha256.New()
	var size int64
	for {
		n, err := src.Read(buf)
		if n > 0 {
			h.Write(buf[:n])
			if err := writeAll(fd, buf[:n]); err != nil {
				return err
			}
			size += int64(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read wanted content: %w", err)
		}
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != e.SHA256 {
		return fmt.Errorf("wanted content is %d bytes of sha256 %s, planned was %s", size, sum, e.SHA256)
	}
	return nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("write", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}
