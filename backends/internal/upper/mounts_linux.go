package upper

import (
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// mountedAt reports whether the mount that the descriptor is on is still the
// one the layer was made over. Over another one nothing in the upper can be
// compared with what is seen. A source without Dev is not checked.
func (s Source) mountedAt(fd int) (bool, error) {
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
	return s.same(Source{Point: m.Mountpoint, Dev: fmt.Sprintf("%d:%d", m.Major, m.Minor), FS: m.FSType, Root: m.Root}), nil
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

// same reports the same part of the same filesystem. Anonymous device numbers
// (major 0: btrfs, tmpfs) are other ones after each mount.
func (s Source) same(o Source) bool {
	anonymous := strings.HasPrefix(s.Dev, "0:") && strings.HasPrefix(o.Dev, "0:")
	return s.Point == o.Point && (s.Dev == o.Dev || anonymous) &&
		(s.FS == "" || s.FS == o.FS) && (s.Root == "" || s.Root == o.Root)
}
