package linuxns

import (
	"fmt"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/builder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
)

// mountBlockers names what mounts of the host make impossible to apply as it was
// rehearsed.
func (v *View) mountBlockers(changes []change.Change) ([]change.Blocker, error) {
	var out []change.Blocker
	copies, err := builder.Copies(v.dir())
	if err != nil {
		return nil, err
	}
	block := func(p change.Path, reason string) {
		out = append(out, change.Blocker{
			What: "mounted-file", Subject: p.String(), Reason: reason,
			Fix: fmt.Sprintf("netsandbox reset %s %s", v.spec.Name, change.Quote(string(p))),
		})
	}
	for _, p := range copies {
		block(p, "a single file is mounted there on the host, from outside of what the view layers; the view changed its private copy")
	}
	if len(changes) == 0 {
		return out, nil
	}
	table, err := mountplan.Read()
	if err != nil {
		return nil, err
	}
	visible := mountplan.Visible(table)
	for _, c := range changes {
		if !replaces(c) {
			continue
		}
		if at := mountplan.Names(visible, string(c.Path)); len(at) > 0 {
			for i := range at {
				at[i] = change.Escape(at[i])
			}
			block(c.Path, fmt.Sprintf("the host has it mounted on %s too, and a mount goes on showing the object that it was made of when another takes its place",
				strings.Join(at, " and ")))
		}
	}
	return out, nil
}

// replaces reports that applying the change puts another object in the place of
// the host's. Only directories keep theirs.
func replaces(c change.Change) bool {
	return c.Old != nil && (c.New == nil || c.Old.Type != change.Directory || c.New.Type != change.Directory)
}
