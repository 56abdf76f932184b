package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// TestMatrix: every kind of thing in a view over every kind of thing on the host,
// all pairs in one transaction. What is applied is what was rehearsed, and what is
// taken back are the very originals.
func TestMatrix(t *testing.T) {
	matrixHost(t)
	pairs := matrixPairs(matrixKinds)
	w := newMatrixWorld(t, installed(t), pairs)
	before := w.picture(true)
	w.rehearse()
	wanted := w.view()
	w.same("the host while the view was changed", before, w.picture(true))

	w.must("apply", "e", "--yes")
	got := w.picture(false)
	kept := keptDirectories(before, wanted)
	w.same("the host after apply, against the view", undate(wanted, kept), undate(got, kept))

	w.must("rollback", w.settled().ID, "--yes")
	w.same("the host after rollback", before, w.picture(true))
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
