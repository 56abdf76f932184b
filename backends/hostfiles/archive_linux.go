package hostfiles

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// archiveName is the second copy of the originals: a tar file, because one long
// write costs a tenth of a thousand small files, and because a person can
// restore from it with nothing of ours installed.
const archiveName = "originals.tar"

// xattrKey is what star and GNU tar call an extended attribute in a pax header.
const xattrKey = "SCHILY.xattr."

// Archive begins to keep a second copy of everything that the steps will
// displace, in a new directory dir, while the caller stages. wait ends it and
// makes it durable; until then the originals must stay in their places.
func (h *Host) Archive(ctx context.Context, steps []backends.Step, dir string) (wait func() error, err error) {
	t, err := openTree(h.root)
	if err != nil {
		return nil, err
	}
	f, err := newArchive(dir)
	if err != nil {
		t.close()
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		defer t.close()
		done <- t.archiveAll(ctx, f, steps)
	}()
	return func() error {
		defer f.Close()
		if err := <-done; err != nil {
			return err
		}
		return durable("sync archive", func() error { return errors.Join(f.Sync(), syncDir(dir)) })
	}, nil
}

func newArchive(dir string) (*os.File, error) {
	if err := os.RemoveAll(dir); err != nil { // of an earlier try
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, archiveName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// archiver writes the originals of one transaction.
type archiver struct {
	*tree
	w     *tar.Writer
	raw   *bufio.Writer                   // what w writes to
	names map[change.Identity]change.Path // of originals that have several
}

func (t *tree) archiveAll(ctx context.Context, f *os.File, steps []backends.Step) error {
	raw := bufio.NewWriterSize(f, 256<<10)
	a := &archiver{t, tar.NewWriter(raw), raw, map[change.Identity]change.Path{}}
	for _, s := range unpacking(steps) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.Change.Old == nil || actOf(s.Change) == actInPlace {
			continue
		}
		if err := a.add(s); err != nil {
			return fmt.Errorf("archive %s: %w", s.Change.Path, err)
		}
	}
	return errors.Join(a.w.Close(), raw.Flush())
}

// unpacking sorts steps as an archive has them: all directories, each before
// what is in it, then everything else, so that a file that is to have several
// names can be unpacked under any of them.
func unpacking(steps []backends.Step) []backends.Step {
	sorted := slices.Clone(steps)
	rank := func(s backends.Step) int {
		if s.Change.Old != nil && s.Change.Old.Type == change.Directory {
			return 0
		}
		return 1
	}
	slices.SortFunc(sorted, func(a, b backends.Step) int {
		if c := rank(a) - rank(b); c != 0 {
			return c
		}
		return strings.Compare(string(a.Change.Path), string(b.Change.Path))
	})
	return sorted
}

func (a *archiver) add(s backends.Step) error {
	dir, base, err := a.parent(s.Change.Path)
	if err != nil {
		return err
	}
	hdr, err := header(s, dir, base)
	if err != nil {
		return err
	}
	old := s.Change.Old
	switch old.Type {
	case change.Directory:
		hdr.Typeflag = tar.TypeDir
		hdr.Name += "/"
	case change.Symlink:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, string(old.Target)
	case change.Fifo:
		hdr.Typeflag = tar.TypeFifo
	default:
		if first, again := a.again(s); again {
			hdr.Typeflag, hdr.Linkname = tar.TypeLink, archived(first)
			break
		}
		return a.addFile(hdr, dir, base, old)
	}
	return a.w.WriteHeader(hdr)
}

// again returns the path under which the same original is in the archive already.
func (a *archiver) again(s backends.Step) (change.Path, bool) {
	id, ok := group(s)
	if !ok {
		return "", false
	}
	first, again := a.names[id]
	if !again {
		a.names[id] = s.Change.Path
	}
	return first, again
}

// group identifies an original that has several names.
func group(s backends.Step) (change.Identity, bool) {
	old := s.Change.Old
	if old == nil || old.Type != change.Regular || old.Links < 2 || old.ID == nil {
		return change.Identity{}, false
	}
	return change.Identity{Dev: old.ID.Dev, Ino: old.ID.Ino}, true
}

// header is what all types of objects have.
func header(s backends.Step, dir int, base string) (*tar.Header, error) {
	all, err := xattr.All(dir, base)
	if err != nil {
		return nil, err
	}
	old := s.Change.Old
	hdr := &tar.Header{
		Name: archived(s.Change.Path), Mode: int64(old.Mode), Uid: int(old.UID), Gid: int(old.GID),
		ModTime: time.Unix(0, old.MTime), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
	for k, v := range all {
		if xattr.Plannable(k) || heritable(k) {
			hdr.PAXRecords[xattrKey+encodeKey.Replace(k)] = string(v)
		}
	}
	return hdr, nil
}

// GNU tar's way with what a keyword cannot hold.
var (
	encodeKey = strings.NewReplacer("%", "%25", "=", "%3D")
	decodeKey = strings.NewReplacer("%3D", "=", "%25", "%")
)

func (a *archiver) addFile(hdr *tar.Header, dir int, base string, old *change.Entry) error {
	fd, err := openFile(dir, base)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	hdr.Typeflag, hdr.Size = tar.TypeReg, old.Size
	if old.Sparse {
		return a.addSparse(hdr, fd, old)
	}
	if err := a.w.WriteHeader(hdr); err != nil {
		return err
	}
	h := sha256.New()
	n, err := passOn(a.w, h, fd, math.MaxInt64, a.buf)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && (n != old.Size || hex.EncodeToString(h.Sum(nil)) != old.SHA256) {
		return backends.ErrHostChanged
	}
	return err
}

// passOn copies at most limit bytes of an open file to w and a hash. An os.File
// would ask the poller about each of them.
func passOn(w io.Writer, h hash.Hash, fd int, limit int64, buf []byte) (passed int64, err error) {
	for passed < limit {
		n, err := unix.Read(fd, buf[:min(int64(len(buf)), limit-passed)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return passed, os.NewSyscallError("read", err)
		case n == 0:
			return passed, nil
		}
		h.Write(buf[:n])
		if _, err := w.Write(buf[:n]); err != nil {
			return passed, err
		}
		passed += int64(n)
	}
	return passed, nil
}

// archived is a path's name in the archive.
func archived(p change.Path) string { return strings.TrimPrefix(string(p), "/") }

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
