package mountplan

import "slices"

// Waits returns the innermost mount that a path lies on, when looking at the path
// could wait for another machine or process, or mount something.
func Waits(all []Mount, p string) (Mount, bool) {
	var at Mount
	for _, m := range all {
		if under(p, m.Point) && len(m.Point) >= len(at.Point) {
			at = m
		}
	}
	for _, m := range all {
		if m.Point != "/" && under(p, m.Point) && !slices.Contains(local, m.FS) {
			return m, true
		}
	}
	return at, false
}
