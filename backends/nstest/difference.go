package nstest

import (
	"slices"
	"strings"
)

// Difference compares two dumps: "- line" for what is gone, "+ line" for what
// is new, sorted. A line that occurs twice in one and once in the other counts.
func Difference(before, after string) []string {
	count := map[string]int{}
	for line := range strings.Lines(before) {
		count[strings.TrimRight(line, "\n")]--
	}
	for line := range strings.Lines(after) {
		count[strings.TrimRight(line, "\n")]++
	}
	var diff []string
	for line, n := range count {
		sign := "+ "
		if n < 0 {
			sign, n = "- ", -n
		}
		for range n {
			diff = append(diff, sign+line)
		}
	}
	slices.Sort(diff)
	return diff
}
