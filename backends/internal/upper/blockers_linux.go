package upper

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
)

// block names something that no plan can express, with the way past it.
func (d *differ) block(what string, p change.Path, reason string) {
	d.out.Blockers = append(d.out.Blockers, change.Blocker{
		What: what, Subject: p.String(), Reason: reason,
		Fix: fmt.Sprintf("netsandbox reset %s %s", d.env, change.Quote(string(p))),
	})
}

func typed(e *change.Entry) bool { return e == nil || plannable(e.Type) }

// specials blocks file types that have no typed change, whichever side has them.
func (d *differ) specials(p *pair, now, want *change.Entry) {
	if !typed(want) {
		d.block(string(want.Type), p.path, fmt.Sprintf("a %s cannot be part of a plan", want.Type))
		return
	}
	d.block(string(now.Type), p.path, fmt.Sprintf("the host has a %s there, which no rollback could bring back", now.Type))
}

// attributeNames lists the names on either side, sorted.
func attributeNames(a, b map[string][]byte) []string {
	all := map[string]bool{}
	for n := range maps.Keys(a) {
		all[n] = true
	}
	for n := range maps.Keys(b) {
		all[n] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// attributeWord returns the blocker for one attribute that differs, or nothing
// for the kernel's harmless bookkeeping. has: the view's file carries it.
func attributeWord(name, value string, has, created bool) (what, reason string) {
	if strings.HasPrefix(name, overlayPrefix) && !strings.HasPrefix(name, overlayEscaped) {
		return overlayWord(strings.TrimPrefix(name, overlayPrefix), value, has)
	}
	how := "differs from the host's"
	switch {
	case !has:
		how = "was removed"
	case created:
		how = "was set"
	}
	switch name {
	case "system.posix_acl_access", "system.posix_acl_default":
		return "acl", "its access control list " + how
	case "security.capability":
		return "capability", "its file capability " + how
	case "security.selinux":
		if created {
			return "", "" // given by the policy; the host's policy will give its own
		}
		return "label", "its security label " + how
	default:
		return "xattr", fmt.Sprintf("its extended attribute %s %s", change.Escape(name), how)
	}
}

// overlayWord judges an attribute of overlayfs's own. Those that only help the
// kernel to find or number inodes mean nothing for the content.
func overlayWord(name, value string, has bool) (what, reason string) {
	if !has {
		return "", "" // on the host's side: the host's own layering
	}
	switch name {
	case "origin", "impure", "nlink", "upper", "uuid":
		return "", ""
	case "opaque":
		if value == "y" {
			return "", ""
		}
		return "overlay", fmt.Sprintf("overlayfs marked it opaque in the way %s", change.Escape(value))
	case "redirect":
		return "redirect", "its content is under another name in the host's layer"
	case "metacopy":
		return "metacopy", "its content was not copied into the layer"
	case "protattr":
		return "attribute", fmt.Sprintf("it was made immutable or append-only (%s)", change.Escape(value))
	default:
		return "overlay", fmt.Sprintf("overlayfs left the attribute %s on it", change.Escape(name))
	}
}

// brief describes an entry in a few words for a conflict.
func brief(e *change.Entry) string {
	if e == nil {
		return "nothing"
	}
	words := []string{string(e.Type), fmt.Sprintf("mode %04o", e.Mode), fmt.Sprintf("owner %d:%d", e.UID, e.GID)}
	switch {
	case e.Type == change.Symlink:
		return fmt.Sprintf("symlink to %s", e.Target)
	case e.Type == change.Regular && len(e.SHA256) >= 12:
		words = append(words, "sha256 "+e.SHA256[:12])
	case e.Type == change.Regular:
		words = append(words, fmt.Sprintf("%d bytes, not read", e.Size))
	}
	return strings.Join(words, " ")
}
