package builder

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// stub is a directory that can be listed and passed through, and holds nothing
// but the places at which something else is mounted.
type stub struct{ dirs, files []string }

// cover hides what is at a path of the view: behind something that cannot even
// be listed, so that nobody takes it for empty, or behind a stub. A path that
// the view does not have, or has as a symlink, does not lead to what is to be
// hidden.
//
// The state directory gets an empty stub. It is ours, so nobody misses anything
// in it, and a backup or a search of the whole tree must not fail because of it.
func (b *build) cover(at string, with *stub) error {
	place, err := mounts.Place(b.root, at, false)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(place)
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t, err := b.hiddenAt(at)
		if err != nil {
			return err
		}
		return mounts.Attach(t, place)
	}
	t, err := b.blank(with)
	if err != nil {
		return err
	}
	return mounts.Attach(t, place)
}

// blank returns a detached directory that cannot be written to.
func (b *build) blank(with *stub) (int, error) {
	const dead = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if with == nil {
		return b.cloak(hiddenDir)
	}
	t, err := mounts.Tmpfs(dead&^unix.MOUNT_ATTR_RDONLY, b.Mode.Shift, "555", "size=1m")
	if err != nil {
		return -1, err
	}
	for _, d := range with.dirs {
		err = errors.Join(err, b.mkdirs(t, d))
	}
	for _, f := range with.files {
		err = errors.Join(err, b.mkdirs(t, path.Dir(f)))
		if err == nil {
			err = b.write(t, f, nil, 0o444)
		}
	}
	if err == nil {
		err = mounts.Set(t, unix.MOUNT_ATTR_RDONLY)
	}
	if err != nil {
		unix.Close(t)
		return -1, fmt.Errorf("make a place for mounts: %w", err)
	}
	return t, nil
}

// mkdirs makes a directory and what is missing above it.
func (b *build) mkdirs(t int, rel string) error {
	for i := range len(rel) + 1 {
		if i < len(rel) && rel[i] != '/' || rel == "." {
			continue
		}
		if err := b.mkdir(t, rel[:i], 0o555); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// coverPiece hides an excluded mount. What is mounted below it, and can be shown,
// gets a place in it.
func (b *build) coverPiece(i int, all []piece) error {
	at := all[i].Point
	var with stub
	for j := i + 1; j < len(all) && strings.HasPrefix(all[j].Point, at+"/"); j++ {
		p := &all[j]
		if p.Treatment == mountplan.Excluded || p.Implied || within(p.Point, i, all) != i {
			continue
		}
		rel := strings.TrimPrefix(p.Point, at+"/")
		if p.file(all) {
			with.files = append(with.files, rel)
		} else {
			with.dirs = append(with.dirs, rel)
		}
	}
	if with.dirs == nil && with.files == nil {
		return b.cover(at, nil)
	}
	return b.cover(at, &with)
}

// within returns the innermost piece, from i on, that a path lies below.
func within(point string, i int, all []piece) int {
	for j := i + 1; j < len(all); j++ {
		if strings.HasPrefix(point, all[j].Point+"/") {
			i = j
		}
	}
	return i
}

// file reports whether the piece is a mount of a single file.
func (p *piece) file(all []piece) bool {
	if p.Treatment != mountplan.Alias {
		return p.Treatment == mountplan.Copy
	}
	if all[p.Of].Treatment == mountplan.Copy || all[p.Of].tree < 0 {
		return all[p.Of].Treatment == mountplan.Copy
	}
	var st unix.Stat_t
	err := unix.Fstatat(all[p.Of].tree, p.Rel, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR
}
