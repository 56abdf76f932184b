package upper

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// originAttr holds the file handle of the lower object that an upper one was
// copied up from: version, magic, length, flags, type, a 16 byte uuid, then the
// handle's own bytes (struct ovl_fb).
const (
	originAttr   = overlayPrefix + "origin"
	originHeader = 21
	originType   = 4 // offset of the handle type in the header
)

// handle is a file handle in comparable form.
type handle struct {
	kind  int32
	bytes []byte
}

// parseOriginAttr returns the handle in the attribute; not ok when the kernel
// wrote none, as it does for a lower that cannot decode handles.
func parseOriginAttr(b []byte) (handle, bool) {
	if len(b) <= originHeader {
		return handle{}, false
	}
	return handle{int32(b[originType]), b[originHeader:]}, true
}

func (h handle) equal(o handle) bool { return h.kind == o.kind && bytes.Equal(h.bytes, o.bytes) }

// handleOf returns the handle of a node of the lower.
func handleOf(n *node) (handle, bool) {
	h, _, err := unix.NameToHandleAt(n.dir, n.name, 0)
	if err != nil {
		return handle{}, false
	}
	return handle{h.Type(), h.Bytes()}, true
}

// alive reports whether the object of the handle still has a name on the
// filesystem of mount. A live view keeps a deleted lower inode in memory, so
// opening it may succeed; its link count is then zero.
func (h handle) alive(mount int) bool {
	fd, err := unix.OpenByHandleAt(mount, unix.NewFileHandle(h.kind, h.bytes), unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Nlink > 0
}
