package xattr

import "strings"

// Names that have a meaning of their own.
const (
	ACL        = "system.posix_acl_access"
	DefaultACL = "system.posix_acl_default"
	Capability = "security.capability"
	SELinux    = "security.selinux"
)

// overlayPrefix begins overlayfs's own bookkeeping. What a process inside an
// overlay sets under that name is stored with the word twice.
const (
	overlayPrefix  = "trusted.overlay."
	overlayEscaped = "trusted.overlay.overlay."
)

// Bookkeeping reports an attribute that overlayfs keeps for itself.
func Bookkeeping(name string) bool {
	return strings.HasPrefix(name, overlayPrefix) && !strings.HasPrefix(name, overlayEscaped)
}

// mirrored reports another name of an ACL. To root xfs lists each under the name
// that it has on disk, too (xfs_xattr_put_listent in fs/xfs/xfs_xattr.c): set from
// an old value, it would take the place of the ACL that was set before.
func mirrored(name string) bool {
	return name == "trusted.SGI_ACL_FILE" || name == "trusted.SGI_ACL_DEFAULT"
}

// Label reports an attribute that a security module or an integrity checker
// gives to an object: by place, or over its content.
func Label(name string) bool {
	return strings.HasPrefix(name, "security.") && name != Capability
}

// Plannable reports an attribute that is part of a change.
func Plannable(name string) bool {
	switch {
	case name == ACL, name == DefaultACL, name == Capability:
		return true
	case Bookkeeping(name), strings.HasPrefix(name, overlayEscaped):
		return false
	}
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "trusted.")
}

// Filter keeps what a plan carries, in canonical form; nil when nothing is left.
func Filter(all map[string][]byte) map[string][]byte {
	var kept map[string][]byte
	for name, value := range all {
		if !Plannable(name) {
			continue
		}
		if kept == nil {
			kept = map[string][]byte{}
		}
		kept[name] = Canonical(name, value)
	}
	return kept
}
