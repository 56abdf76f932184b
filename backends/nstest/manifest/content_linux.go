package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// file describes a regular file. One with holes has a line about them, and is
// told by its blocks that hold anything, so that a large one costs what is in it.
func (n *node) file(mode string) (own string, more []string, err error) {
	fd, err := n.open(0)
	if err != nil {
		return "", nil, err
	}
	f := os.NewFile(uintptr(fd), n.name)
	defer f.Close()
	size := int64(n.st.Size)
	data, err := segments(fd, size)
	if err != nil {
		return "", nil, err
	}
	own = fmt.Sprintf("file %s size %d", mode, size)
	if size == 0 || len(data) == 1 && data[0] == (segment{0, size}) {
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
			return "", nil, err
		}
		return fmt.Sprintf("%s sha256 %x", own, h.Sum(nil)), nil, nil
	}
	sum, err := blocks(f, data)
	if err != nil {
		return "", nil, err
	}
	line := strings.TrimSpace(Data)
	for _, s := range data {
		line += fmt.Sprintf(" %d+%d", s.start, s.end-s.start)
	}
	return own + " blocks " + sum, []string{line}, nil
}

// segment is a part of a file that is no hole.
type segment struct{ start, end int64 }

// segments asks the filesystem, lseek(2). One that knows no holes answers with
// one segment, the whole file.
func segments(fd int, size int64) ([]segment, error) {
	var all []segment
	for at := int64(0); at < size; {
		start, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return all, nil // a hole to the end
		}
		if err != nil {
			return nil, fmt.Errorf("seek data: %w", err)
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("seek hole: %w", err)
		}
		all = append(all, segment{start, end})
		at = end
	}
	return all, nil
}

// blocks is a digest of every block that is not all zeros, with its place: the
// same for all layouts of one content.
func blocks(f io.ReaderAt, data []segment) (string, error) {
	const size = 4096
	h := sha256.New()
	buf, zeros := make([]byte, size), make([]byte, size)
	for _, s := range data {
		for at := s.start / size * size; at < s.end; at += size {
			n, err := f.ReadAt(buf, at)
			if err != nil && err != io.EOF {
				return "", err
			}
			if bytes.Equal(buf[:n], zeros[:n]) {
				continue
			}
			var place [8]byte
			binary.BigEndian.PutUint64(place[:], uint64(at))
			h.Write(place[:])
			h.Write(buf[:n])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
