package hostfiles

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/change"
)

// What somebody removed from a directory while that was out of its place is named
// when the directory is back, whatever the plan had put there meanwhile.
func TestUndoNamesWhatDidNotComeBack(t *testing.T) {
	for _, want := range []string{"none", "file:new"} {
		for gone, left := range map[string][]string{
			"":      nil,
			"l":     {"/etc/d/l"},
			"sub/x": {"/etc/d/sub/x"},
			"sub":   {"/etc/d/sub"},
		} {
			t.Run(kindOf(want)+" without "+gone, func(t *testing.T) {
				f := newFixture(t)
				f.put("etc/d/l", "link:t")
				f.put("etc/d/sub/x", "file:x")
				f.age()
				steps := f.swap([]change.Change{
					f.change("/etc/d", want), f.change("/etc/d/l", "none"),
					f.change("/etc/d/sub", "none"), f.change("/etc/d/sub/x", "none"),
				})
				top := ""
				for _, s := range steps {
					if s.Change.Path == "/etc/d" {
						top = string(s.Place.Dir) + "/" + s.Place.Name
					}
				}
				if gone != "" {
					f.ok(os.RemoveAll(f.path(top + "/" + gone)))
				}
				found, err := f.host.Undo(context.Background(), steps)
				f.ok(err)
				var subjects []string
				for _, l := range found {
					subjects = append(subjects, l.Subject)
				}
				if d := cmp.Diff(left, subjects); d != "" {
					t.Errorf("left (-want +got):\n%s", d)
				}
			})
		}
	}
}
