package holder

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// span is a part of a file, [at, end).
type span struct{ at, end int64 }

// fill gives a file the first size bytes of a candidate, with the candidate's
// holes. Space comes first: what was staged before is not lost to a full disk.
func fill(to, from *os.File, size int64) error {
	old, err := to.Stat()
	if err != nil {
		return err
	}
	data, err := dataOf(from, size)
	if err != nil {
		return fmt.Errorf("read candidate: %w", err)
	}
	for _, s := range data {
		err := unix.Fallocate(int(to.Fd()), unix.FALLOC_FL_KEEP_SIZE, s.at, s.end-s.at)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("reserve space: %w", err)
		}
	}
	at := int64(0)
	for _, s := range data {
		if err := zero(to, at, min(s.at, old.Size())); err != nil {
			return err
		}
		if err := copySpan(to, from, s); err != nil {
			return err
		}
		at = s.end
	}
	if err := zero(to, at, min(size, old.Size())); err != nil {
		return err
	}
	return to.Truncate(size)
}

// dataOf lists the parts of a file that are not holes. The offset that lseek(2)
// moves on the way is shared with whoever sent the descriptor, and put back.
func dataOf(f *os.File, size int64) (_ []span, err error) {
	fd := int(f.Fd())
	was, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil {
		return nil, err
	}
	defer func() {
		_, back := unix.Seek(fd, was, unix.SEEK_SET)
		err = errors.Join(err, back)
	}()
	var all []span
	for at := int64(0); at < size; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		}
		if errors.Is(err, unix.EINVAL) { // the filesystem knows no holes
			return append(all, span{at, size}), nil
		}
		if err != nil {
			return nil, err
		}
		end, err := unix.Seek(fd, data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if data < at || end <= data {
			return nil, fmt.Errorf("find data: %d to %d after %d", data, end, at)
		}
		if data >= size {
			break
		}
		at = min(end, size)
		all = append(all, span{data, at})
	}
	return all, nil
}

func copySpan(to, from *os.File, s span) error {
	buf := make([]byte, min(s.end-s.at, 256<<10))
	for s.at < s.end {
		n, err := unix.Pread(int(from.Fd()), buf[:min(s.end-s.at, int64(len(buf)))], s.at)
		if err != nil {
			return fmt.Errorf("read candidate: %w", err)
		}
		if n == 0 {
			return errors.New("read candidate: it became shorter")
		}
		if _, err := to.WriteAt(buf[:n], s.at); err != nil {
			return fmt.Errorf("write candidate: %w", err)
		}
		s.at += int64(n)
	}
	return nil
}

// zero makes a part of what was there before read as zeros.
func zero(f *os.File, at, end int64) error {
	if at >= end {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, end-at)
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	zeros := make([]byte, 256<<10)
	for at < end {
		n, err := f.WriteAt(zeros[:min(end-at, int64(len(zeros)))], at)
		if err != nil {
			return fmt.Errorf("write candidate: %w", err)
		}
		at += int64(n)
	}
	return nil
}
