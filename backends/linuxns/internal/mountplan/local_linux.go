package mountplan

import "slices"

// Waits returns a mount on the way to a path of the host that could make whoever
// looks at it wait for another machine or process, or that mounts something when
// it is looked into. The root must be looked at anyway.
func Waits(all []Mount, p string) (Mount, bool) {
	i := slices.IndexFunc(all, func(m Mount) bool {
		return m.Point != "/" && under(p, m.Point) && !slices.Contains(local, m.FS)
	})
	if i < 0 {
		return Mount{}, false
	}
	return all[i], true
}
