package hostfiles

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// flushStaged makes the content of the hidden directories durable.
func (t *tree) flushStaged(steps []backends.Step, tops map[string]change.Path) error {
	if len(steps) >= few || slices.ContainsFunc(steps, unsyncable) {
		return t.flushPlaces(steps)
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, s := range steps {
		if s.Change.New == nil || s.Place.Name == "" {
			continue
		}
		if s.Change.New.Type == change.Symlink {
			continue // durable with the directory that names it
		}
		hidden, err := t.place(s.Place.Dir)
		if err != nil {
			return err
		}
		fd, err := openBelow(hidden, slotOf(s, tops), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
		if err == unix.EACCES { // a mode that keeps even its owner from reading
			return t.flushPlaces(steps)
		}
		if err != nil {
			return os.NewSyscallError("openat2", err)
		}
		fds = append(fds, fd)
		if s.Change.New.Type == change.Regular {
			// Start writing all of them, so that the first fsync commits the
			// allocation of every one and the others find nothing left to do.
			// A filesystem without it is slower, no less durable.
			_ = unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		}
	}
	return durable("sync staged", func() error {
		for _, fd := range fds {
			if err := unix.Fsync(fd); err != nil {
				return os.NewSyscallError("fsync", err)
			}
		}
		return t.fsyncPlaces(steps)
	})
}

// unsyncable reports a step whose object has metadata of its own that no fsync(2)
// of it or of its directory makes durable on every filesystem: a fifo answers
// EINVAL, a symlink cannot be opened, and what chown(2) changed after an object
// was made is in another transaction of xfs than its name.
func unsyncable(s backends.Step) bool {
	e := s.Change.New
	switch {
	case e == nil || s.Place.Name == "":
		return false
	case e.Type == change.Fifo:
		return true
	}
	return e.Type == change.Symlink && (len(e.Xattrs) > 0 || e.UID != uint32(os.Geteuid()) || e.GID != uint32(os.Getegid()))
}

// fsyncPlaces flushes the hidden directories and the directories they are in.
func (t *tree) fsyncPlaces(steps []backends.Step) error {
	for _, d := range places(steps) {
		up, _ := split(d)
		for _, d := range []change.Path{d, up} {
			if err := t.fsyncDir(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// flushPlaces flushes each filesystem that holds a hidden directory. The
// descriptors were opened before anything was written, so an earlier error of
// the same write-back is reported here (since 5.8).
func (t *tree) flushPlaces(steps []backends.Step) error {
	for _, d := range places(steps) {
		err := durable("syncfs "+string(d), func() error { return t.flushPlace(d) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tree) flushPlace(d change.Path) error {
	fd, err := t.place(d)
	if absent(err) { // undo goes on without it
		up, _ := split(d)
		if fd, err = t.open(up, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
			defer unix.Close(fd)
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Syncfs(fd); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	// A filesystem that an error has turned read-only has nothing to sync, says the
	// kernel (6.18, sync_filesystem), and loses what it had.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if fs.Flags&unix.ST_RDONLY != 0 {
		return os.NewSyscallError("syncfs", unix.EROFS)
	}
	return nil
}

// flushSwapped makes renames and directory metadata durable. Again says that an
// earlier flush may have failed: btrfs (6.18) answers a second fsync of the
// directory that it could not write with success, syncfs it does not.
func (t *tree) flushSwapped(steps []backends.Step, again bool) error {
	if (again || len(steps) >= few) && len(places(steps)) > 0 {
		if err := t.flushPlaces(steps); err != nil {
			return err
		}
		// Directories changed in place may lie on filesystems without a place.
		return t.fsyncInPlace(steps)
	}
	return durable("sync swapped", func() error {
		for _, d := range touchedDirs(steps) {
			if err := t.fsyncDir(d); err != nil {
				return err
			}
		}
		return t.fsyncPlaces(steps)
	})
}

// touchedDirs lists, once each, the directories whose entries or metadata the
// steps change.
func touchedDirs(steps []backends.Step) []change.Path {
	var dirs []change.Path
	for _, s := range steps {
		if s.Place.Within == "" {
			dirs = append(dirs, touched(s))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

func (t *tree) fsyncInPlace(steps []backends.Step) error {
	for _, s := range steps {
		if actOf(s.Change) != actInPlace {
			continue
		}
		if err := t.fsyncDir(s.Change.Path); err != nil {
			return err
		}
	}
	return nil
}

// fsyncDir flushes a directory. One that is gone, or in whose place somebody put
// a symlink, holds nothing of ours.
func (t *tree) fsyncDir(d change.Path) error {
	fd, err := t.open(d, unix.O_RDONLY|unix.O_DIRECTORY)
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fsync(fd); err != nil && err != unix.EINVAL { // some filesystems have no directory fsync
		return &os.PathError{Op: "fsync", Path: d.String(), Err: err}
	}
	return nil
}
