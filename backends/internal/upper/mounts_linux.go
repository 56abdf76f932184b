package upper

import (
	"fmt"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/deadfs"
	"github.com/netsandbox/netsandbox/backends/internal/fsid"
)

// mountGone is why a layer has no lower, mostly.
const mountGone = "the host no longer has the mount that the layer was made over"

// mountedOver is why a path has no lower to be compared with.
const mountedOver = "the host has mounted something over it"

// made reports a directory that the view made, and did not copy up for what is
// in it. It is told without the lower.
func (p *pair) made() bool {
	_, copied := p.attrs[originAttr]
	return p.up.isDir() && p.lo == nil && !copied
}

// mountTable is the mounts of the calling thread's namespace.
type mountTable []*mountinfo.Info

func readTable() (mountTable, error) {
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return infos, nil
}

// obstacle says, from the table alone, why the mount of a layer is not to be
// looked at. What stands at its place may be an automount point, which a look
// would trigger, and a server on the way to it may be dead.
func (t mountTable) obstacle(s Source) string {
	if s.Point == "/" || s.Dev == "" {
		return ""
	}
	waits, here := "", false
	for _, m := range t {
		if m.Mountpoint == s.Point && (s.FS == "" || m.FSType == s.FS) {
			here = true
		}
		if m.Mountpoint != "/" && within(s.Point, m.Mountpoint) && !slices.Contains(fsid.Local, m.FSType) {
			waits = m.FSType
		}
	}
	if !here {
		return mountGone
	}
	if waits == "" {
		return ""
	}
	if err := deadfs.Check(s.Point); err != nil {
		return fmt.Sprintf("its %s filesystem: %v", waits, err)
	}
	return ""
}

// mountedAt reports whether the mount that the descriptor is on is still the
// one the layer was made over. Over another one nothing in the upper can be
// compared with what is seen. A source without Dev is not checked.
func mountedAt(s Source, fd int) (bool, error) {
	if s.Dev == "" {
		return true, nil
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return false, fmt.Errorf("stat %s: %w", s.Point, err)
	}
	// By mount id: several mounts may be stacked on one point.
	m, err := mountByID(st.Mnt_id)
	if err != nil || m == nil {
		return false, err
	}
	now := Source{Point: m.Mountpoint, Dev: fmt.Sprintf("%d:%d", m.Major, m.Minor), FS: m.FSType, Root: m.Root}
	if now.ID, err = fsid.Of(fd); err != nil {
		return false, fmt.Errorf("%s: %w", s.Point, err)
	}
	return s.Same(now), nil
}

// mountByID returns a mount of this process's namespace, or nil.
func mountByID(id uint64) (*mountinfo.Info, error) {
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		match := uint64(m.ID) == id
		return !match, match
	})
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	if len(infos) == 0 {
		return nil, nil
	}
	return infos[0], nil
}
