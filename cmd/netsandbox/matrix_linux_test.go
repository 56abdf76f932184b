package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// TestMatrix: every kind of thing in a view over every kind of thing on the host,
// all pairs in one transaction. What is applied is what was rehearsed, and what is
// taken back are the very originals.
func TestMatrix(t *testing.T) {
	matrixHost(t)
	pairs := pairsOver(func(host string) bool { return host != immutable })
	w := newMatrixWorld(t, installed(t), 64<<20, pairs)
	before := w.picture(true)
	w.rehearse()
	wanted := w.view()
	w.same("the host while the view was changed", before, w.picture(true))

	w.must("apply", "e", "--yes")
	got := w.picture(false)
	kept := keptDirectories(before, wanted)
	w.same("the host after apply, against the view", undate(wanted, kept), undate(samePlaces(wanted, got), kept))

	w.must("rollback", w.settled().ID, "--yes")
	w.same("the host after rollback", before, w.picture(true))
	w.running()
	count(t, fmt.Sprintf("matrix: %d pairs of %d kinds applied and rolled back", len(pairs), len(matrixKinds)))
}

// keptDirectories lists the directories that both sides have with the same
// metadata. They are no change, so the time of the last change in them is the
// host's own: when the transaction swapped what is in them.
func keptDirectories(before, wanted []string) map[string]bool {
	was, kept := map[string]bool{}, map[string]bool{}
	for _, l := range before {
		own, _, _ := strings.Cut(l, manifest.MTime)
		own, _, _ = strings.Cut(own, manifest.Inode)
		was[own] = true
	}
	for _, l := range wanted {
		own, _, dated := strings.Cut(l, manifest.MTime)
		if path, rest, _ := strings.Cut(own, " "); dated && strings.HasPrefix(rest, "directory ") && was[own] {
			kept[path] = true
		}
	}
	return kept
}

// undate drops the times of some paths.
func undate(lines []string, paths map[string]bool) []string {
	var all []string
	for _, l := range lines {
		own, _, dated := strings.Cut(l, manifest.MTime)
		if path, _, _ := strings.Cut(own, " "); dated && paths[path] {
			l = own
		}
		all = append(all, l)
	}
	return all
}

// samePlaces gives a file of got the map of holes that the file has in wanted,
// unless there is data where that has a hole. A view's map is coarser than the
// host's may be: copying up, overlayfs writes a whole mebibyte for each part that
// holds anything, and zeros in it are what apply makes holes of again.
func samePlaces(wanted, got []string) []string {
	maps := map[string]string{}
	for _, l := range wanted {
		if path, places, ok := strings.Cut(l, manifest.Data); ok {
			maps[path] = places
		}
	}
	var all []string
	for _, l := range got {
		path, places, ok := strings.Cut(l, manifest.Data)
		if want, has := maps[path]; ok && has && covers(want, places) {
			l = path + manifest.Data + want
		}
		all = append(all, l)
	}
	return all
}

// covers reports that every place of b, "offset+length", lies in one of a.
func covers(a, b string) bool {
	for _, inner := range strings.Fields(b) {
		var at, n int64
		if _, err := fmt.Sscanf(inner, "%d+%d", &at, &n); err != nil {
			return false
		}
		if !slices.ContainsFunc(strings.Fields(a), func(outer string) bool {
			var from, size int64
			_, err := fmt.Sscanf(outer, "%d+%d", &from, &size)
			return err == nil && from <= at && at+n <= from+size
		}) {
			return false
		}
	}
	return true
}
