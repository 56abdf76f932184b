package upper

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// holeLimit bounds the holes of a file that is hashed. They cost no reading, but
// there is no short way to the hash of zeros: 64 GiB take about a minute, and a
// file of 1 TiB, which anybody can make with truncate(1), a quarter of an hour
// at every look. What has more is named instead.
const holeLimit = 64 << 30

// errHoles: the file has more than [holeLimit] of holes.
var errHoles = errors.New("too many zeros to hash")

// zeroBlock takes no room in the program: it is never written.
var zeroBlock [1 << 20]byte

// extent is the next part of a file with data: [data, end). An empty one at the
// size of the file ends it.
type extent struct{ data, end int64 }

// nextData finds the first data at or after at, as lseek(2) tells it. A
// filesystem that knows no holes says that all is data.
func nextData(fd int, at, size int64) (extent, error) {
	data, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return extent{size, size}, nil
	case errors.Is(err, unix.EINVAL):
		return extent{at, size}, nil
	case err != nil:
		return extent{}, fmt.Errorf("find data: %w", err)
	}
	end, err := unix.Seek(fd, data, unix.SEEK_HOLE)
	if errors.Is(err, unix.ENXIO) { // cut shorter since
		return extent{size, size}, nil
	}
	if err != nil {
		return extent{}, fmt.Errorf("find hole: %w", err)
	}
	if data < at || end <= data { // a filesystem of somebody's own making
		return extent{}, fmt.Errorf("find data: %d to %d after %d", data, end, at)
	}
	return extent{min(data, size), min(end, size)}, nil
}

// holes adds up the holes of a file that may have too many of them.
func holes(fd int, size int64) (int64, error) {
	if size <= holeLimit {
		return 0, nil
	}
	var sum int64
	for at := int64(0); at < size; {
		e, err := nextData(fd, at, size)
		if err != nil {
			return 0, err
		}
		sum += e.data - at
		at = e.end
	}
	return sum, nil
}
