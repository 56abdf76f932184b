package upper

import (
	"bytes"
	"fmt"
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

// untyped decides a path where either side has a type that no plan holds. A new
// socket is a by-product of the process that listens on it, which makes it again
// wherever it runs.
func (d *differ) untyped(p *pair, now, want *change.Entry) {
	switch {
	case now.Same(want) && p.up.st.Rdev_major == p.lo.st.Rdev_major && p.up.st.Rdev_minor == p.lo.st.Rdev_minor:
		return
	case now == nil && want.Type == socket:
		d.out.Ephemeral = append(d.out.Ephemeral, derive(p.path, nil, want))
		return
	case !typed(want):
		d.block(string(want.Type), p.path, fmt.Sprintf("a %s cannot be part of a plan", want.Type))
	default:
		d.block(string(now.Type), p.path, fmt.Sprintf("the host has a %s there, which no rollback could bring back", now.Type))
	}
	if !d.inBase(p.path) {
		d.outside(member{path: p.path, now: now, want: want})
	}
}

// conflict tells what stands against a change that was made from old.
func conflict(now, old *change.Entry) string {
	s := fmt.Sprintf("the host has %s now, the change was made from %s", brief(now), brief(old))
	if now == nil || old == nil {
		return s
	}
	var other []string
	for _, name := range attributeNames(now.Xattrs, old.Xattrs) {
		is, has := now.Xattrs[name]
		if was, had := old.Xattrs[name]; has != had || !bytes.Equal(is, was) {
			other = append(other, change.Escape(name))
		}
	}
	if len(other) > 0 {
		s += "; attributes differ: " + strings.Join(other, ", ")
	}
	return s
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
