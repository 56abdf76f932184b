package hostfiles

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// act is what the swap does for one step.
type act int

const (
	actPlace    act = iota // a new object goes where nothing is
	actExchange            // a new object changes places with the old
	actTake                // the old object goes away
	actInPlace             // a directory keeps its entries and gets other metadata
)

func actOf(c change.Change) act {
	switch {
	case c.Old == nil:
		return actPlace
	case c.New == nil:
		return actTake
	case c.Old.Type == change.Directory && c.New.Type == change.Directory:
		return actInPlace
	}
	return actExchange
}

// rank orders the swap: what others need first, what others used last, and
// metadata of directories when everything in them has been done.
func rank(c change.Change) int {
	switch {
	case actOf(c) == actInPlace:
		return 4
	case c.New == nil:
		return 3
	case c.New.Type == change.Symlink, c.New.Type == change.Fifo:
		return 2 // a symlink after the files it may point at
	case c.New.Type == change.Directory:
		return 0
	}
	return 1
}

// arrange makes one step per change in the order of the swap; undo goes the
// other way.
func arrange(cs []change.Change) []backends.Step {
	steps := make([]backends.Step, len(cs))
	for i, c := range cs {
		steps[i].Change = c
	}
	slices.SortFunc(steps, func(a, b backends.Step) int {
		if c := cmp.Compare(rank(a.Change), rank(b.Change)); c != 0 {
			return c
		}
		c := strings.Compare(string(a.Change.Path), string(b.Change.Path))
		if a.Change.New == nil {
			return -c // deepest first
		}
		return c
	})
	for i := range steps {
		if actOf(steps[i].Change) != actInPlace {
			steps[i].Place.Name = fmt.Sprint(i)
		}
	}
	return steps
}

// carriers finds, for each path, the step whose rename takes it along.
type carriers struct {
	moved map[change.Path]int // steps that rename a directory
	steps []backends.Step
	memo  map[change.Path]int // of directories; -1 for none
}

func newCarriers(steps []backends.Step) *carriers {
	c := &carriers{map[change.Path]int{}, steps, map[change.Path]int{"/": -1}}
	for i, s := range steps {
		old, want := s.Change.Old, s.Change.New
		if actOf(s.Change) != actInPlace &&
			(old != nil && old.Type == change.Directory || want != nil && want.Type == change.Directory) {
			c.moved[s.Change.Path] = i
		}
	}
	return c
}

// of returns the topmost step that carries what lies in directory d, or -1.
func (c *carriers) of(d change.Path) int {
	if top, ok := c.memo[d]; ok {
		return top
	}
	up, _ := split(d)
	top := c.of(up)
	if top < 0 {
		if i, ok := c.moved[d]; ok {
			top = i
		}
	}
	c.memo[d] = top
	return top
}

// carry marks the steps that do nothing of their own. Below a new directory
// everything is new, and below one that goes everything goes.
func carry(steps []backends.Step) error {
	c := newCarriers(steps)
	for i := range steps {
		s := &steps[i]
		up, _ := split(s.Change.Path)
		top := c.of(up)
		if top < 0 {
			continue
		}
		by := steps[top].Change
		made := by.New != nil && by.New.Type == change.Directory
		if made && s.Change.Old != nil || !made && s.Change.New != nil {
			return fmt.Errorf("%s %s below %s %s: the plan contradicts itself",
				s.Change.Op, s.Change.Path, by.Op, by.Path)
		}
		s.Place.Within = steps[top].Place.Name
	}
	return nil
}

// tops maps the name of each carrying step to its path.
func tops(steps []backends.Step) map[string]change.Path {
	m := map[string]change.Path{}
	for _, s := range steps {
		if s.Place.Within == "" && s.Place.Name != "" {
			m[s.Place.Name] = s.Change.Path
		}
	}
	return m
}

// inside returns where, below the hidden directory, a carried step's object is
// while its carrier is there.
func inside(s backends.Step, top change.Path) string {
	return s.Place.Within + strings.TrimPrefix(string(s.Change.Path), string(top))
}

// slotOf is where, below its hidden directory, the original of a step is kept.
func slotOf(s backends.Step, tops map[string]change.Path) string {
	if s.Place.Within == "" {
		return s.Place.Name
	}
	return inside(s, tops[s.Place.Within])
}
