package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/netsandbox/netsandbox/backends/change"
)

// copier copies and hashes many files with one buffer.
type copier struct {
	stop    func() error // asked between blocks; a sparse file may have any size
	sum     hash.Hash
	buf     []byte
	noClone bool // the filesystem said once that it cannot share extents
}

// cloneFrom is the size from which sharing extents is worth a try.
const cloneFrom = 64 << 10

// blob puts the wanted content of one change into the directory under its hash.
func (c *copier) blob(dir string, ch change.Change, open func(change.Path) (*os.File, error)) error {
	if !isHash(ch.New.SHA256) {
		return fmt.Errorf("%s: the change names no content", ch.Path) // and would name our own directory
	}
	src, err := open(ch.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w: it is gone", ch.Path, ErrMoved)
	}
	if err != nil {
		return err
	}
	defer src.Close()
	name := filepath.Join(dir, ch.New.SHA256)
	dst, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return c.proved(src, ch, nil) // another path wants the same bytes
	}
	if err != nil {
		return err
	}
	return errors.Join(c.proved(src, ch, dst), dst.Close())
}

// proved copies, unless dst is nil, and wants the bytes to be the planned ones.
// What is hashed is what was written, or for a clone what was cloned.
func (c *copier) proved(src *os.File, ch change.Change, dst *os.File) error {
	r := src
	if dst != nil && !c.noClone && ch.New.Size >= cloneFrom && c.clone(dst, src) {
		r, dst = dst, nil
	}
	sum, err := c.hash(dst, r, ch.New.Sparse)
	if err != nil {
		return fmt.Errorf("copy %s: %w", ch.Path, err)
	}
	if sum != ch.New.SHA256 {
		return fmt.Errorf("%s: %w: its hash is %s, planned was %s", ch.Path, ErrMoved, sum, ch.New.SHA256)
	}
	return nil
}

func (c *copier) clone(dst, src *os.File) bool {
	if err := reflink(dst, src); err != nil {
		c.noClone = true
		return false
	}
	return true
}

// hash copies src to dst, unless that is nil, and returns the hash of what passed.
// Holes are neither read nor written.
func (c *copier) hash(dst, src *os.File, sparse bool) (string, error) {
	if c.sum == nil {
		c.sum = sha256.New()
	}
	c.sum.Reset()
	var w io.Writer = io.Discard
	if dst != nil {
		w = dst
	}
	var err error
	if sparse {
		err = c.passHoled(dst, src)
	} else {
		err = c.pass(w, src)
	}
	return hex.EncodeToString(c.sum.Sum(nil)), err
}

// pass copies and hashes all of r.
func (c *copier) pass(w io.Writer, r io.Reader) error {
	for {
		if err := c.stop(); err != nil {
			return err
		}
		n, err := r.Read(c.buf)
		if n > 0 {
			c.sum.Write(c.buf[:n])
			if _, err := w.Write(c.buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// passHoled copies and hashes a file piece by piece of its data.
func (c *copier) passHoled(dst, src *os.File) error {
	st, err := src.Stat()
	if err != nil {
		return err
	}
	at := int64(0)
	for at < st.Size() {
		start, end, err := nextData(src, at, st.Size())
		if err != nil {
			return err
		}
		if err := c.hashZeros(start - at); err != nil {
			return err
		}
		var w io.Writer = io.Discard
		if dst != nil {
			w = io.NewOffsetWriter(dst, start)
		}
		if err := c.pass(w, io.NewSectionReader(src, start, end-start)); err != nil {
			return err
		}
		at = end
	}
	if dst == nil {
		return nil
	}
	return dst.Truncate(st.Size())
}

func (c *copier) hashZeros(n int64) error {
	clear(c.buf)
	for n > 0 {
		if err := c.stop(); err != nil {
			return err
		}
		k := min(n, int64(len(c.buf)))
		c.sum.Write(c.buf[:k])
		n -= k
	}
	return nil
}
