package upper

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// errUnstable: the file was written while it was read, more than once.
var errUnstable = errors.New("written while it was read")

// settleTime is how long ago a file must have changed for its hash to be kept: a
// later write within the same tick of the filesystem's clock would not show in
// its change time.
const settleTime = 2 * time.Second

// hasher computes content hashes and remembers them by identity and size.
type hasher struct {
	cache *hashCache
	sum   hash.Hash
	buf   []byte
	stop  func() error // asked between blocks; a sparse file may have any size
}

func newHasher(c *hashCache) *hasher {
	return &hasher{cache: c, sum: sha256.New(), buf: make([]byte, 128<<10)}
}

// regular returns the hash of a regular file as the node shows it. A file that
// changes meanwhile is read again; the node is then brought up to date.
func (h *hasher) regular(n *node) (string, error) {
	for range 3 {
		k := keyOf(n)
		if s, ok := h.cache.get(k); ok {
			return s, nil
		}
		s, err := h.read(n)
		if err != nil {
			return "", err
		}
		after, err := lookup(n.dir, n.name)
		if err != nil {
			return "", err
		}
		if after == nil {
			return "", fmt.Errorf("hash %s: %w", change.Escape(n.name), unix.ENOENT)
		}
		n.renew(after)
		if keyOf(n) == k {
			if time.Since(time.Unix(0, n.ctime())) > settleTime {
				h.cache.put(k, s)
			}
			return s, nil
		}
	}
	return "", fmt.Errorf("hash %s: %w", change.Escape(n.name), errUnstable)
}

// read hashes the file's data where it has some, and zeros for its holes, which
// costs no reading.
func (h *hasher) read(n *node) (string, error) {
	fd, err := openFile(n.dir, n.name)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", change.Escape(n.name), err)
	}
	defer unix.Close(fd)
	h.sum.Reset()
	hash := h.data // a file that occupies all of its size has no holes to look for
	if n.sparse() {
		hash = h.ranges
	}
	if err := hash(fd, 0, int64(n.st.Size)); err != nil {
		return "", fmt.Errorf("read %s: %w", change.Escape(n.name), err)
	}
	return hex.EncodeToString(h.sum.Sum(nil)), nil
}

// ranges hashes a part of a file with holes, up to its size. A file that has
// become shorter or longer has another change time too, and is read again.
func (h *hasher) ranges(fd int, at, size int64) error {
	if n, err := holes(fd, size); err != nil || n > holeLimit {
		return cmp.Or(err, errHoles)
	}
	for at < size {
		r, err := nextData(fd, at, size)
		if err != nil {
			return err
		}
		if err := h.zeros(r.data - at); err != nil {
			return err
		}
		if err := h.data(fd, r.data, r.end); err != nil {
			return err
		}
		at = r.end
	}
	return nil
}

func (h *hasher) data(fd int, at, end int64) error {
	for at < end {
		if err := h.stopped(); err != nil {
			return err
		}
		k, err := unix.Pread(fd, h.buf[:min(end-at, int64(len(h.buf)))], at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || k == 0 {
			return err
		}
		h.sum.Write(h.buf[:k])
		at += int64(k)
	}
	return nil
}

func (h *hasher) zeros(n int64) error {
	for n > 0 {
		if err := h.stopped(); err != nil {
			return err
		}
		k := min(n, int64(len(zeroBlock)))
		h.sum.Write(zeroBlock[:k])
		n -= k
	}
	return nil
}

func (h *hasher) stopped() error {
	if h.stop == nil {
		return nil
	}
	return h.stop()
}

func keyOf(n *node) hashKey {
	return hashKey{unix.Mkdev(n.st.Dev_major, n.st.Dev_minor), n.st.Ino, n.st.Size, n.ctime()}
}
