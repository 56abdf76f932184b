package hostfiles

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// garb is the metadata of a directory that is changed in place. It is changed in
// several calls, and a crash leaves a mixture; but each part of the mixture is
// the old or the wanted one, which is how replay knows it.
type garb struct {
	node   *node
	xattrs map[string][]byte
}

func garbOf(fd int) (garb, error) {
	n, err := stat(fd, "")
	if err != nil {
		return garb{}, err
	}
	xattrs, err := xattr.Planned(fd, "")
	return garb{n, xattrs}, err
}

// between reports metadata of which every part is a's or b's. The permission
// bits and those above them are two parts: an access ACL sets only the first.
func (g garb) between(a, b *change.Entry) bool {
	n := g.node
	if n.fmt != unix.S_IFDIR || n.uid != a.UID && n.uid != b.UID || n.gid != a.GID && n.gid != b.GID {
		return false
	}
	for _, bits := range []uint32{0o7000, 0o777} {
		if n.mode&bits != a.Mode&bits && n.mode&bits != b.Mode&bits {
			return false
		}
	}
	for k := range attrNames(g.xattrs, a.Xattrs, b.Xattrs) {
		if !sameAttr(g.xattrs, a.Xattrs, k) && !sameAttr(g.xattrs, b.Xattrs, k) {
			return false
		}
	}
	return true
}

// alter gives an open directory the metadata of e, one durable step for each
// part that differs. The access ACL goes before the mode: chmod(2) writes the
// group bits into the mask of an ACL that is there, which would make a third one.
func (g garb) alter(fd int, p change.Path, e *change.Entry) error {
	step := func(what string, err func() error) error {
		return durable("set "+what+" of "+string(p), err)
	}
	if g.node.uid != e.UID || g.node.gid != e.GID {
		err := step("owner", func() error { return os.NewSyscallError("fchown", unix.Fchown(fd, int(e.UID), int(e.GID))) })
		if err != nil {
			return err
		}
	}
	todo := slices.SortedFunc(maps.Keys(attrNames(g.xattrs, e.Xattrs)), func(a, b string) int {
		if c := turn(a) - turn(b); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	if len(todo) > 0 && todo[0] == xattr.ACL {
		if err := g.alterAttr(fd, todo[0], e, step); err != nil {
			return err
		}
		todo = todo[1:]
	}
	// Unconditionally: the ACL may have moved what was looked at.
	err := step("mode", func() error { return os.NewSyscallError("fchmod", unix.Fchmod(fd, e.Mode)) })
	if err != nil {
		return err
	}
	for _, k := range todo {
		if err := g.alterAttr(fd, k, e, step); err != nil {
			return err
		}
	}
	return nil
}

func (g garb) alterAttr(fd int, name string, e *change.Entry, step func(string, func() error) error) error {
	if sameAttr(g.xattrs, e.Xattrs, name) {
		return nil
	}
	return step(change.Escape(name), func() error {
		value, ok := e.Xattrs[name]
		if !ok {
			return attr{name, nil, true}.done(unix.Fremovexattr(fd, name))
		}
		return attr{name, value, true}.done(unix.Fsetxattr(fd, name, value, 0))
	})
}

// swapInPlace gives a directory its new metadata: it cannot be exchanged without
// what is in it.
func (t *tree) swapInPlace(s backends.Step) error {
	fd, err := t.open(s.Change.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if absent(err) || errors.Is(err, unix.ELOOP) {
			return fmt.Errorf("%w: %w", backends.ErrHostChanged, err)
		}
		return err
	}
	defer unix.Close(fd)
	g, err := garbOf(fd)
	if err != nil {
		return err
	}
	if g.node.ino != s.Place.Original.Ino || !g.between(s.Change.Old, s.Change.New) {
		return backends.ErrHostChanged
	}
	return durable("set "+string(s.Change.Path), func() error {
		if err := g.alter(fd, s.Change.Path, s.Change.New); err != nil {
			return err
		}
		return ownTime(fd, s.Place.DirAfter)
	})
}

func (u *undoer) undoInPlace(s backends.Step) error {
	fd, err := u.open(s.Change.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if absent(err) || errors.Is(err, unix.ELOOP) {
			u.leave(s, "no directory is there any more", "")
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	g, err := garbOf(fd)
	switch {
	case err != nil:
		return err
	case g.node.ino != s.Place.Original.Ino:
		u.leave(s, "another directory stands there", g.byHand(s.Change))
		return nil
	case g.between(s.Change.Old, s.Change.Old):
		return nil
	case !g.between(s.Change.Old, s.Change.New):
		u.leave(s, g.String(), g.byHand(s.Change))
		return nil
	}
	return u.take(s, func() error {
		return errors.Join(g.alter(fd, s.Change.Path, s.Change.Old), u.redated(fd, s))
	})
}

func (u *undoer) doneInPlace(s backends.Step) (bool, error) {
	fd, err := u.open(s.Change.Path, unix.O_PATH|unix.O_DIRECTORY)
	if absent(err) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	g, err := garbOf(fd)
	return err == nil && g.between(s.Change.New, s.Change.New), err
}

func (g garb) String() string {
	text := fmt.Sprintf("mode %04o, owner %d:%d", g.node.mode, g.node.uid, g.node.gid)
	if len(g.xattrs) > 0 {
		text += ", attributes " + change.Escape(strings.Join(slices.Sorted(maps.Keys(g.xattrs)), " "))
	}
	return text
}

// byHand is what gives a directory its old metadata, in the order that alter has.
func (g garb) byHand(c change.Change) string {
	p, old := quote(c.Path), c.Old
	todo := []string{fmt.Sprintf("chown %d:%d %s", old.UID, old.GID, p), fmt.Sprintf("chmod %04o %s", old.Mode, p)}
	for _, k := range slices.Sorted(maps.Keys(attrNames(old.Xattrs, g.xattrs))) {
		if sameAttr(g.xattrs, old.Xattrs, k) {
			continue
		}
		line := "setfattr -x " + quote(change.Path(k)) + " " + p
		if v, ok := old.Xattrs[k]; ok {
			line = fmt.Sprintf("setfattr -n %s -v 0x%x %s", quote(change.Path(k)), v, p)
		}
		todo = append(todo, line)
	}
	return strings.Join(todo, " && ")
}
