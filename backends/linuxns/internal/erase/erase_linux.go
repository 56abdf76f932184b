package erase

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// MountedError says that something is mounted in a tree that was to go.
type MountedError struct{ Tree, Point string }

func (e *MountedError) Error() string {
	return fmt.Sprintf("delete %s: %s is mounted below it", change.Escape(e.Tree), change.Escape(e.Point))
}

// Tree deletes one entry of a directory with everything below it. When it
// returns without an error, all of it is gone, though somebody else may have
// deleted it at the same time. Where something is mounted in it, nothing is
// deleted.
func Tree(dir, name string) error {
	path := filepath.Join(dir, name)
	mounted, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint != path && !strings.HasPrefix(i.Mountpoint, path+"/"), false
	})
	if err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	if len(mounted) > 0 {
		return &MountedError{Tree: path, Point: mounted[0].Mountpoint}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	defer unix.Close(fd)
	e := eraser{top: -1}
	if err := e.entry(fd, name, 0); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// levels is how deep one entry is followed with a descriptor for each directory
// on the way. What lies deeper is moved up and comes when everything else went.
const levels = 64

type eraser struct {
	top   int // the directory that holds the tree's entries, or -1
	moved int
}

// entry deletes one name of an open directory.
func (e *eraser) entry(dir int, name string, depth int) error {
	err := e.insist(dir, name, func() error { return unix.Unlinkat(dir, name, 0) })
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.EISDIR):
		return named(name, err)
	case depth >= levels:
		err = e.insist(dir, name, func() error { return e.lift(dir, name) })
	default:
		if err = e.empty(dir, name, depth); err == nil {
			err = e.insist(dir, name, func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return nil // what is below answers for itself, so it is this one that is gone
	}
	return named(name, err)
}

// lift moves a directory up, under a name that nobody else has lifted one to.
func (e *eraser) lift(dir int, name string) error {
	for {
		e.moved++
		err := unix.Renameat2(dir, name, e.top, ".netsandbox-"+strconv.Itoa(e.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// empty deletes everything in a directory.
func (e *eraser) empty(dir int, name string, depth int) error {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return err
	}
	if depth == 0 {
		e.top = fd
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	// Again from the start after each batch: what is moved up here appears anew,
	// and no filesystem promises more about a directory that shrinks.
	for {
		if _, err := f.Seek(0, 0); err != nil {
			return err
		}
		names, err := f.Readdirnames(4096)
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, n := range names {
			if err := e.entry(fd, n, depth+1); err != nil {
				return err
			}
		}
	}
}

// insist does something with an entry, and again without the flags of chattr(1)
// where they forbid it: immutable or append-only, on it or on its directory.
func (e *eraser) insist(dir int, name string, do func() error) error {
	err := do()
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	release(dir, ".")
	release(dir, name)
	if e.top >= 0 {
		release(e.top, ".")
	}
	return do()
}

// release clears the flags, as far as it can; whether that was enough is seen by
// trying. Only files and directories have any, and nothing else is opened.
func release(dir int, name string) {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return
	}
	if t := st.Mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFDIR {
		return
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	const protected = 0x10 | 0x20 // FS_IMMUTABLE_FL and FS_APPEND_FL of linux/fs.h
	if flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS); err == nil && flags&protected != 0 {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags&^protected))
	}
}

func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "unlink", Path: change.Escape(name), Err: err}
}
