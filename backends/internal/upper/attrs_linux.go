package upper

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// overlayPrefix begins the kernel's own bookkeeping attributes in an upper.
// What a process inside sets under that name is stored as …overlay.overlay.…
const (
	overlayPrefix  = "trusted.overlay."
	overlayEscaped = "trusted.overlay.overlay."
)

// xattrs returns all extended attributes, overlayfs's marks among them.
func (n *node) xattrs() (map[string][]byte, error) {
	if n == nil {
		return nil, nil
	}
	if n.listed {
		return n.attrs, nil
	}
	all, err := xattr.All(n.dir, n.name)
	if err != nil {
		return nil, err
	}
	n.attrs, n.listed = all, true
	return all, nil
}

// proc names the node for system calls that take no descriptor.
func (n *node) proc() string { return xattr.Path(n.dir, n.name) }

// marks blocks what stands for content or power that is elsewhere: overlayfs's
// own marks, and what a process inside put into overlayfs's name space, which
// on the host would be read as such a mark.
func (d *differ) marks(p *pair) error {
	if p.up == nil {
		return nil
	}
	lower, err := p.lo.xattrs()
	if err != nil {
		return err
	}
	for _, name := range attributeNames(p.attrs, lower) {
		is, has := p.attrs[name]
		switch {
		case strings.HasPrefix(name, overlayEscaped):
			if was, had := lower[name]; had != has || !bytes.Equal(was, is) {
				d.block("xattr", p.path, fmt.Sprintf("its extended attribute %s is overlayfs's own on the host", change.Escape(name)))
			}
		case has && xattr.Bookkeeping(name):
			if what, reason := overlayWord(strings.TrimPrefix(name, overlayPrefix), string(is)); what != "" {
				d.block(what, p.path, reason)
			}
		}
	}
	return nil
}

// overlayWord judges an attribute of overlayfs's own. Those that only help the
// kernel to find or number inodes mean nothing for the content.
func overlayWord(name, value string) (what, reason string) {
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

// unheld lists what plannable attributes begin with that the layer's filesystem
// cannot hold; tmpfs knows no user.* before Linux 6.6. A copy-up leaves them out
// without a word, so that their absence from the layer says nothing.
func (l *layer) unheld() []string {
	var all []string
	for _, name := range []string{"user.", "trusted.", xattr.ACL, xattr.DefaultACL, xattr.Capability} {
		asked := name
		if strings.HasSuffix(name, ".") {
			asked += "netsandbox"
		}
		if _, err := unix.Fgetxattr(l.upper, asked, nil); errors.Is(err, unix.EOPNOTSUPP) {
			all = append(all, name)
		}
	}
	return all
}

// inherit gives an entry of the layer what the host's has and the layer cannot
// hold.
func (d *differ) inherit(want, now *change.Entry) {
	if len(d.unheld) == 0 || want == nil || now == nil || want.Type != now.Type {
		return
	}
	kept := maps.Clone(want.Xattrs)
	for name, value := range now.Xattrs {
		if slices.ContainsFunc(d.unheld, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			if kept == nil {
				kept = map[string][]byte{}
			}
			kept[name] = value
		}
	}
	want.Xattrs = kept
}

// attributeNames lists the names on either side, sorted.
func attributeNames(a, b map[string][]byte) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
