package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// material is what an object is made of beside its entry.
type material struct {
	content io.Reader // a regular file's bytes
	// data says where content has any, if that is known. Elsewhere it is zeros.
	data []extent
	// inherited are attributes that no plan carries.
	inherited map[string][]byte
}

// create makes one object and returns what it is. A directory is left
// accessible to us and gets its metadata when it has been filled.
func create(dir int, name string, e *change.Entry, m material, buf []byte) (*node, error) {
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
		err = dressAt(dir, name, e, m.inherited)
	case change.Fifo:
		if err = unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0); err != nil {
			return nil, os.NewSyscallError("mknodat", err)
		}
		err = dressAt(dir, name, e, m.inherited)
	case change.Regular:
		return createFile(dir, name, e, m, buf)
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
func createFile(dir int, name string, e *change.Entry, m material, buf []byte) (*node, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, e.Mode&0o777)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	f := filler{fd: fd, src: m.content, sum: sha256.New(), buf: buf}
	if err := f.fill(e, m.data); err != nil {
		return nil, err
	}
	n, err := stat(fd, "")
	if err != nil {
		return nil, err
	}
	if len(e.Xattrs)+len(m.inherited) == 0 && n.mode == e.Mode && n.uid == e.UID && n.gid == e.GID {
		return n, setTime(fd, "", e.MTime)
	}
	return n, dress(fd, e, m.inherited)
}

// filler writes the content of one file and proves on the way that it is what
// was planned.
type filler struct {
	fd   int
	src  io.Reader
	sum  hash.Hash
	buf  []byte
	size int64 // read so far
}

func (f *filler) fill(e *change.Entry, data []extent) error {
	var err error
	switch {
	case !e.Sparse:
		err = f.copy(f.writeAll)
	case data == nil, len(data) == 1 && data[0] == extent{0, e.Size}:
		// Nobody knows of a hole, perhaps because the same bytes were kept for a
		// file without any.
		err = f.holed(e.Size, func() error { return f.copy(f.writeSome) })
	default:
		err = f.holed(e.Size, func() error { return f.copyData(data, e.Size) })
	}
	if err != nil {
		return err
	}
	if sum := hex.EncodeToString(f.sum.Sum(nil)); sum != e.SHA256 {
		return fmt.Errorf("wanted content is %d bytes of sha256 %s, planned was %s", f.size, sum, e.SHA256)
	}
	return nil
}

// holed sizes the file first: what is written inside a file's size does not make
// xfs reserve blocks beyond its end.
func (f *filler) holed(size int64, write func() error) error {
	if err := unix.Ftruncate(f.fd, size); err != nil {
		return os.NewSyscallError("ftruncate", err)
	}
	return write()
}

// copy hands all of the source to write, piece by piece with its offset.
func (f *filler) copy(write func(b []byte, off int64) error) error {
	for {
		n, err := f.src.Read(f.buf)
		if n > 0 {
			f.sum.Write(f.buf[:n])
			if err := write(f.buf[:n], f.size); err != nil {
				return err
			}
			f.size += int64(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read wanted content: %w", err)
		}
	}
}

// copyData copies the extents that hold data and passes over the others.
func (f *filler) copyData(data []extent, size int64) error {
	all := f.src
	for _, x := range append(data, extent{off: size}) {
		hole := x.off - f.size
		if err := skip(all, hole); err != nil {
			return fmt.Errorf("read wanted content: %w", err)
		}
		hashZeros(f.sum, hole)
		f.size += hole
		f.src = io.LimitReader(all, x.len)
		if err := f.copy(f.pwriteAll); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) writeAll(b []byte, _ int64) error {
	for len(b) > 0 {
		n, err := unix.Write(f.fd, b)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("write", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

func (f *filler) pwriteAll(b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(f.fd, b, off)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("pwrite", err)
		}
		n = max(n, 0)
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// writeSome leaves out blocks of zeros.
func (f *filler) writeSome(b []byte, off int64) error {
	for len(b) > 0 {
		n := min(int64(len(b)), grain-off%grain)
		if string(b[:n]) != string(zeros[:n]) {
			if err := f.pwriteAll(b[:n], off); err != nil {
				return err
			}
		}
		b, off = b[n:], off+n
	}
	return nil
}
