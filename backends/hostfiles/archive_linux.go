package hostfiles

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
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

func (t *tree) archiveAll(ctx context.Context, f *os.File, steps []backends.Step) error {
	buffer := bufio.NewWriterSize(f, 256<<10)
	w := tar.NewWriter(buffer)
	for _, s := range byPath(steps) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.Change.Old == nil || actOf(s.Change) == actInPlace {
			continue
		}
		if err := t.archive(w, s); err != nil {
			return fmt.Errorf("archive %s: %w", s.Change.Path, err)
		}
	}
	return errors.Join(w.Close(), buffer.Flush())
}

// byPath sorts steps so that a directory comes before what is in it.
func byPath(steps []backends.Step) []backends.Step {
	sorted := slices.Clone(steps)
	slices.SortFunc(sorted, func(a, b backends.Step) int {
		return strings.Compare(string(a.Change.Path), string(b.Change.Path))
	})
	return sorted
}

func (t *tree) archive(w *tar.Writer, s backends.Step) error {
	dir, base, err := t.parent(s.Change.Path)
	if err != nil {
		return err
	}
	xattrs, err := source{dir, base, true}.xattrs()
	if err != nil {
		return err
	}
	old := s.Change.Old
	hdr := &tar.Header{
		Name: archived(s.Change.Path), Mode: int64(old.Mode), Uid: int(old.UID), Gid: int(old.GID),
		ModTime: time.Unix(0, old.MTime), Format: tar.FormatPAX, PAXRecords: map[string]string{},
	}
	for k, v := range xattrs {
		hdr.PAXRecords[xattrKey+k] = string(v)
	}
	switch old.Type {
	case change.Directory:
		hdr.Typeflag = tar.TypeDir
		hdr.Name += "/"
		return w.WriteHeader(hdr)
	case change.Symlink:
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, string(old.Target)
		return w.WriteHeader(hdr)
	}
	hdr.Typeflag, hdr.Size = tar.TypeReg, old.Size
	if err := w.WriteHeader(hdr); err != nil {
		return err
	}
	return t.archiveContent(w, dir, base, old)
}

func (t *tree) archiveContent(w io.Writer, dir int, base string, old *change.Entry) error {
	fd, err := openFile(dir, base)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	src := os.NewFile(uintptr(fd), base)
	defer src.Close()
	h := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(w, h), struct{ io.Reader }{src}, t.buf)
	if errors.Is(err, tar.ErrWriteTooLong) || err == nil && (n != old.Size || hex.EncodeToString(h.Sum(nil)) != old.SHA256) {
		return backends.ErrHostChanged
	}
	return err
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

// isMissing reports a step whose target is ours, or empty, while the original is
// no longer in its slot.
func (u *undoer) isMissing(s backends.Step) (bool, error) {
	if s.Change.Old == nil || s.Place.Within != "" || actOf(s.Change) == actInPlace {
		return false, nil
	}
	if s.Change.New != nil && s.Place.Staged == nil {
		return false, nil
	}
	p, err := u.look(s)
	if err != nil || p.lost != "" || p.slot != nil {
		return false, err
	}
	if s.Change.New == nil {
		return p.at == nil, nil
	}
	return p.at.is(s.Place.Staged, p.dev), nil
}

// ensurePlace makes a hidden directory unless it is there.
func (t *tree) ensurePlace(d change.Path) error {
	up, base, err := t.parent(d)
	if err != nil {
		return err
	}
	return quietly(up, func() error {
		if err := unix.Mkdirat(up, base, placeMode()); err != nil && err != unix.EEXIST {
			return &os.PathError{Op: "mkdir", Path: d.String(), Err: err}
		}
		return nil
	})
}
