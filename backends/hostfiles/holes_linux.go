package hostfiles

import (
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// extent is a stretch of a file that holds data. Between two of them is a hole,
// and so is what follows the last.
type extent struct{ off, len int64 }

func (x extent) end() int64 { return x.off + x.len }

// zeros is what a hole reads as.
var zeros [128 << 10]byte

// grain is the least hole worth making: no filesystem's block is smaller by
// default, and larger ones round.
const grain = 4096

// dataMap returns where an open file of the given size has data. Where the
// filesystem does not say, all of it is. The file offset moves.
func dataMap(fd int, size int64) ([]extent, error) {
	data := []extent{} // not nil: a file may be one hole
	for off := int64(0); off < size; {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		switch {
		case err == unix.ENXIO:
			return data, nil
		case err == unix.EINVAL:
			return append(data, extent{off, size - off}), nil
		case err != nil:
			return nil, os.NewSyscallError("lseek", err)
		case start >= size:
			return data, nil
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return nil, os.NewSyscallError("lseek", err)
		}
		end = min(end, size)
		data = append(data, extent{start, end - start})
		off = end
	}
	return data, nil
}

// coalesce closes the smallest holes until no more than most extents are left.
func coalesce(data []extent, most int) []extent {
	for gap := int64(16 * grain); len(data) > most; gap *= 2 {
		kept := data[:1]
		for _, x := range data[1:] {
			if last := &kept[len(kept)-1]; x.off-last.end() < gap {
				last.len = x.end() - last.off
			} else {
				kept = append(kept, x)
			}
		}
		data = kept
	}
	return data
}

// hashZeros adds n zeros to a hash.
func hashZeros(h hash.Hash, n int64) {
	for n > 0 {
		k := min(n, int64(len(zeros)))
		h.Write(zeros[:k])
		n -= k
	}
}

// skip passes over n bytes that are zeros.
func skip(r io.Reader, n int64) error {
	if s, ok := r.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekCurrent)
		return err
	}
	_, err := io.CopyN(io.Discard, r, n)
	return err
}

// hashHoled hashes a file with holes, without reading them.
func hashHoled(h hash.Hash, fd int, size int64, buf []byte) error {
	data, err := dataMap(fd, size)
	if err != nil {
		return err
	}
	at := int64(0)
	for _, x := range data {
		hashZeros(h, x.off-at)
		for at = x.off; at < x.end(); {
			n, err := unix.Pread(fd, buf[:min(int64(len(buf)), x.end()-at)], at)
			switch {
			case err == unix.EINTR:
				continue
			case err != nil:
				return os.NewSyscallError("pread", err)
			case n == 0:
				return nil // it was cut short; its change time says so
			}
			h.Write(buf[:n])
			at += int64(n)
		}
	}
	hashZeros(h, size-at)
	return nil
}
