package holder

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
)

// Settle ends what the dead holder of an environment left: its groups, and a view
// whose PID 1 survived it. It returns the group's name, or "" when there was
// nothing to do. An environment whose holder lives or is about to be started, and
// a directory without one, are left alone.
func Settle(dir envdir.Dir) (group string, err error) {
	rec, err := dir.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// What is cheap to know first: every command asks for every environment.
	if rec.BootID != envdir.BootID() || path.Dir(rec.Cgroup) != cgroup.Tag || lives(dir, rec) {
		return "", nil
	}
	g, err := cgroup.Open(path.Base(rec.Cgroup))
	if err != nil {
		return "", err
	}
	if !left(g, rec) {
		return "", nil
	}
	start, err := dir.Lock(envdir.StartLock, false)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer start.Close()
	if rec, err = dir.Load(); err != nil || lives(dir, rec) || !left(g, rec) { // somebody was faster
		return "", err
	}
	if err := End(g, rec); err != nil {
		return "", fmt.Errorf("end what is left of %s: %w", g.Name(), err)
	}
	return g.Name(), nil
}

// lives reports whether the environment may have a holder: one is dead only when
// its lock is free and its process is gone. The lock alone is a file that somebody
// may have moved.
func lives(dir envdir.Dir, rec envdir.Holder) bool {
	f, err := dir.Lock(envdir.HolderLock, false)
	if err != nil {
		return true
	}
	f.Close()
	return runs(openProcess(rec.PID, rec.Start, rec.BootID))
}

// runs closes what openProcess returned and reports whether that is more than a
// zombie.
func runs(fd int, ok bool) bool {
	if !ok {
		return false
	}
	defer unix.Close(fd)
	return !ends(fd, 0)
}

// left reports whether a group, or a PID 1 that is more than a zombie, is there.
func left(g *cgroup.Group, rec envdir.Holder) bool {
	return g.Exists() || runs(openInit(rec))
}
