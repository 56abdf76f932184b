package upper

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// window is when the entries that have no origin yet can have come into the
// upper.
type window struct {
	view int64 // since the present view was mounted
	// exec is since when the earliest command runs that can have made one; never
	// before view. A command that lives on counts for as long as it lives: what it
	// writes now it may have derived from what it read then.
	exec    int64
	stepped bool // the clock was set back meanwhile: no times compare
}

// way is what is known of the directories that lead to an entry. A directory
// that is renamed takes what is in it along without moving its change times.
type way struct {
	// same: each is still the directory that the view looked into.
	same bool
	// still: none can have been moved since the view was mounted, not even away
	// and back. A rename changes both the directory and the one that names it.
	still bool
	above int64 // when the host last changed the innermost; 0 when it has none
}

// into is what is known of the way to the entries of a directory. It is asked
// after the visit of the directory itself.
func (p *pair) into(tview int64) way {
	if p.lo == nil {
		return way{p.way.same, p.way.still, 0} // nothing below it can be the host's
	}
	changed := p.lo.changed()
	return way{
		same:  p.way.same && p.sameDir(),
		still: p.way.still && (p.top || changed < tview || p.way.above < tview),
		above: changed,
	}
}

// sameDir reports whether the lower directory is the one that the upper one was
// copied up from. Where the kernel wrote no handle, as for a lower that has none,
// it must be the object that was recorded.
func (p *pair) sameDir() bool {
	if p.top || !p.up.isDir() {
		return true // a mount stays where it is; a deleted one is judged itself
	}
	if h, ok := parseOriginAttr(p.attrs[originAttr]); ok {
		now, ok := handleOf(p.lo)
		return ok && h.equal(now)
	}
	if p.known == nil || p.known.Old == nil {
		return true // made in the view: what the host has since has been judged by itself
	}
	id := p.known.Old.ID
	return id != nil && id.Ino == p.lo.st.Ino && (p.lo.st.Dev_major == 0 || id.Dev == p.lo.identity().Dev)
}

// doubt says why the host's present object may not be the one that the view
// started from; empty when it certainly is.
func (r *recorder) doubt(p *pair) string {
	switch {
	case p.covered:
		return mountedOver
	case !p.way.same:
		return movedAbove
	case r.stepped:
		return "the clock was set back, or the machine restarted, since the view was mounted"
	case p.foreign != "":
		return "times on a " + p.foreign + " filesystem come from another clock"
	case p.lo == nil:
		return r.absentDoubt(p)
	case p.cover != "" && r.log.cover[p.cover]:
		return "the host added it after its directory was deleted in the view"
	case r.seenByCommand(p):
		return ""
	case p.lo.ctime() > time.Now().UnixNano():
		return "a clock that was wrong dated its last change in the future; touch it on the host"
	case p.lo.changed() >= r.view:
		return "the host changed it after the view was mounted"
	case !p.way.still && !p.copied():
		return "a directory above it was moved on the host, or may have been"
	case p.up != nil && !p.top && p.up.born() < r.view:
		return "the view that changed it was rebuilt before its origin was recorded"
	}
	return ""
}

const movedAbove = "a directory above it was replaced on the host"

// absentDoubt is about a path that the host does not have. What the host removed
// from there, or moved away, changed the directory that named it. A replaced file
// has no trace in the upper of what it stands for, so nothing else would show. It
// goes for what both have deleted, too: something may be made there again.
func (r *recorder) absentDoubt(p *pair) string {
	switch _, copied := parseOriginAttr(p.attrs[originAttr]); {
	case p.way.above < r.view && p.way.still:
		return ""
	case copied:
		return "the host deleted it after the view was mounted, or may have"
	default:
		return "the host changed its directory after the view was mounted, and may have had it"
	}
}

// seenByCommand reports that the upper entry was copied up from the object that
// the host has now, by a command that started after the host had last changed
// it: then whatever the command knew of it is what is there, though the view is
// older. The handle tells the object from one that took its place; overlayfs goes
// on serving the inode that it has looked up. It writes none for a file with
// several names, which leaves the other evidence.
func (r *recorder) seenByCommand(p *pair) bool {
	if p.up == nil || p.top || r.exec <= r.view || p.lo.changed() >= r.exec {
		return false
	}
	if p.up.st.Mask&unix.STATX_BTIME == 0 || p.up.born() < r.exec {
		return false // an earlier command made it
	}
	return p.copied()
}

// copied reports that the upper entry was copied up from the object that the
// host has now, whichever way the view found it.
func (p *pair) copied() bool {
	if p.up == nil {
		return false
	}
	made, ok := parseOriginAttr(p.attrs[originAttr])
	if !ok {
		return false
	}
	now, ok := handleOf(p.lo)
	if !ok || !made.equal(now) {
		return false
	}
	again, err := lookup(p.lo.dir, p.lo.name) // the handle was taken by name
	return err == nil && again != nil && again.st.Ino == p.lo.st.Ino && again.ctime() == p.lo.ctime()
}

// changed is the latest moment that the change time can stand for. Filesystems
// cut it down: to whole seconds with 128 byte inodes (ext4(5)), to two on FAT, to
// hundredths elsewhere. Where digits are zero, they may have been.
func (n *node) changed() int64 {
	t := n.st.Ctime
	switch {
	case t.Nsec == 0 && t.Sec%2 == 0:
		return nanos(t) + 2e9
	case t.Nsec == 0:
		return nanos(t) + 1e9
	case t.Nsec%1e7 == 0:
		return nanos(t) + 1e7
	}
	return nanos(t)
}

// localFilesystems are those whose change times this kernel's clock writes. On a
// network the server's does, and in FUSE whatever the daemon answers: there no
// time says what came first.
var localFilesystems = []string{
	"", "bcachefs", "btrfs", "ecryptfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "iso9660", "jffs2", "jfs", "msdos", "nilfs2",
	"ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "ubifs", "udf", "vfat", "xfs", "zfs",
}

// foreign returns the lower's filesystem type when another clock dates it.
func (l *layer) foreign() string {
	if slices.Contains(localFilesystems, l.source.FS) {
		return ""
	}
	return l.source.FS
}
