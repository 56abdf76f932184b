package hostfiles

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Every type that can stand on the host against every type that can be wanted.
func TestEveryPairAppliesAndRollsBack(t *testing.T) {
	kinds := []string{"none", "file:one\x00two", "dir", "link:/nowhere"}
	for _, have := range kinds {
		for _, want := range []string{"none", "file:three", "dir", "link:other"} {
			if have == "none" && want == "none" {
				continue
			}
			t.Run(kindOf(have)+" becomes "+kindOf(want), func(t *testing.T) {
				f := newFixture(t)
				f.put("etc/x/other", "file:bystander")
				f.put("etc/x/it", have)
				f.age()
				before := f.manifest()

				steps := f.swap([]change.Change{f.change("/etc/x/it", want)})
				left, err := f.host.Verify(context.Background(), steps)
				f.ok(err)
				if len(left) > 0 {
					t.Fatalf("not as wanted: %+v", left)
				}
				f.back(steps)
				f.same("host after undo", before, f.manifest())
			})
		}
	}
}

func kindOf(what string) string {
	kind, _, _ := strings.Cut(what, ":")
	return kind
}

func TestTreesMoveWhole(t *testing.T) {
	for name, c := range map[string]struct {
		have [][2]string // made in order
		want [][2]string // changes
	}{
		"a tree is added": {nil, [][2]string{
			{"/etc/n", "dir"}, {"/etc/n/a", "file:a"}, {"/etc/n/d", "dir"}, {"/etc/n/d/l", "link:../a"}, {"/etc/n/d/b", "file:b"},
		}},
		"a tree is deleted": {
			[][2]string{{"etc/n/a", "file:a"}, {"etc/n/d/b", "file:b"}, {"etc/n/d/l", "link:b"}},
			[][2]string{{"/etc/n/a", "none"}, {"/etc/n/d/b", "none"}, {"/etc/n/d/l", "none"}, {"/etc/n/d", "none"}, {"/etc/n", "none"}},
		},
		"a tree becomes a file": {
			[][2]string{{"etc/n/a", "file:a"}, {"etc/n/d/b", "file:b"}},
			[][2]string{{"/etc/n", "file:now a file"}, {"/etc/n/a", "none"}, {"/etc/n/d", "none"}, {"/etc/n/d/b", "none"}},
		},
		"a file becomes a tree": {
			[][2]string{{"etc/n", "file:a"}},
			[][2]string{{"/etc/n", "dir"}, {"/etc/n/sub", "dir"}, {"/etc/n/sub/f", "file:deep"}},
		},
		"a directory is emptied, refilled and its mode changed": {
			[][2]string{{"etc/n/old", "file:a"}, {"etc/n/kept", "file:k"}},
			[][2]string{{"/etc/n", "dir"}, {"/etc/n/old", "none"}, {"/etc/n/new", "file:n"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.put("etc/bystander", "file:b")
			for _, h := range c.have {
				f.put(h[0], h[1])
			}
			f.age()
			before := f.manifest()
			var cs []change.Change
			for _, w := range c.want {
				cs = append(cs, f.change(w[0], w[1]))
			}
			steps := f.swap(cs)
			left, err := f.host.Verify(context.Background(), steps)
			f.ok(err)
			if len(left) > 0 {
				t.Fatalf("not as wanted: %+v", left)
			}
			f.back(steps)
			f.same("host after undo", before, f.manifest())
		})
	}
}

func TestCommitKeepsTheOriginalsOnly(t *testing.T) {
	f := newFixture(t)
	f.put("etc/a", "file:old")
	f.age()
	steps := f.swap([]change.Change{f.change("/etc/a", "file:new"), f.change("/etc/b", "file:added")})
	f.ok(f.host.Clean(context.Background(), steps, true))
	list, err := os.ReadDir(f.path(string(steps[0].Place.Dir)))
	f.ok(err)
	if len(list) != 1 || f.read(string(backup(steps[0]))) != "old" {
		t.Fatalf("hidden directory holds %v", list)
	}
	f.ok(f.host.Clean(context.Background(), steps, false))
	if _, err := os.Lstat(f.path(string(steps[0].Place.Dir))); !os.IsNotExist(err) {
		t.Fatalf("hidden directory after giving the backup up: %v", err)
	}
	if f.read("etc/a") != "new" || f.read("etc/b") != "added" {
		t.Fatal("the host is not as committed")
	}
}
