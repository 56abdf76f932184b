package upper

import (
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
		n.st = after.st
		if keyOf(n) == k {
			if time.Since(time.Unix(0, n.ctime())) > settleTime {
				h.cache.put(k, s)
			}
			return s, nil
		}
	}
	return "", fmt.Errorf("hash %s: %w", change.Escape(n.name), errUnstable)
}

func (h *hasher) read(n *node) (string, error) {
	fd, err := openFile(n.dir, n.name)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", change.Escape(n.name), err)
	}
	defer unix.Close(fd)
	h.sum.Reset()
	for {
		if h.stop != nil {
			if err := h.stop(); err != nil {
				return "", fmt.Errorf("read %s: %w", change.Escape(n.name), err)
			}
		}
		k, err := unix.Read(fd, h.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w", change.Escape(n.name), err)
		}
		if k == 0 {
			return hex.EncodeToString(h.sum.Sum(nil)), nil
		}
		h.sum.Write(h.buf[:k])
	}
}

func keyOf(n *node) hashKey {
	return hashKey{unix.Mkdev(n.st.Dev_major, n.st.Dev_minor), n.st.Ino, n.st.Size, n.ctime()}
}
