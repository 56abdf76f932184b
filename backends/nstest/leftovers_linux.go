package nstest

import (
	"fmt"
	"slices"
	"strings"
)

// snapshot is the machine as the run finds it, without processes and cgroups:
// tests of other packages, run at the same time, have those and not any of the
// rest. A run's own processes are found by [stray].
func snapshot() []string {
	lines, err := dump(slices.DeleteFunc(parts(), func(p part) bool { return p.shared })...)
	if err != nil {
		return []string{"snapshot failed: " + err.Error()}
	}
	return lines
}

// leftovers lists what is on the machine now and was not before the run, and
// the reverse. A machine on which others work at the same time may show their
// doing, which is why it fails a run only with -nstest.require.
func leftovers(before []string) []string {
	var left []string
	for _, p := range stray() {
		left = append(left, fmt.Sprintf("process %d (%s)", p.pid, p.comm))
	}
	after := snapshot()
	return append(left, Difference(strings.Join(before, "\n"), strings.Join(after, "\n"))...)
}
