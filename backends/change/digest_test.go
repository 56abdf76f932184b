package change

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func sampleChanges() []Change {
	return []Change{
		{Kind: KindFile, Op: Modified, Path: "/etc/a", Old: &Entry{Type: Regular, Mode: 0o644, SHA256: "01"}, New: &Entry{Type: Regular, Mode: 0o600, UID: 1, GID: 2, SHA256: "02"}},
		{Kind: KindFile, Op: Added, Path: "/etc/b", New: &Entry{Type: Symlink, Mode: 0o777, Target: "/x"}},
		{Kind: KindFile, Op: Deleted, Path: "/etc/c", Old: &Entry{Type: Directory, Mode: 0o755}},
		{Kind: "route", Op: Added, Path: "default"},
	}
}

// Evidence and plans in journals are bound to this value.
func TestDigestIsStable(t *testing.T) {
	const golden = "sha256:b4637f45558357e92de5b126bf2c03be10abddc42c4f33ab18ab5de16c604d25"
	if got := Digest(sampleChanges()); got != golden {
		t.Errorf("digest %s, want %s", got, golden)
	}
	const empty = "sha256:7b7c8a8822d62fef0bdaa21e5774df36432e78040a214cd1bdbe1c98e0395265"
	if got := Digest(nil); got != empty {
		t.Errorf("digest of nothing %s, want %s", got, empty)
	}
}

func TestDigestDoesNotDependOnOrder(t *testing.T) {
	want := Digest(sampleChanges())
	rapid.Check(t, func(t *rapid.T) {
		cs := sampleChanges()
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		order := slices.Clone(cs)
		if got := Digest(cs); got != want {
			t.Fatalf("digest %s, want %s", got, want)
		}
		if !slices.EqualFunc(order, cs, func(a, b Change) bool { return a.Path == b.Path }) {
			t.Fatal("taking the digest reordered the list")
		}
	})
}

func TestDigestCoversEverythingPlannable(t *testing.T) {
	seen := map[string]string{Digest(sampleChanges()): "nothing changed"}
	for name, edit := range map[string]func([]Change){
		"kind":            func(cs []Change) { cs[0].Kind = "other" },
		"operation":       func(cs []Change) { cs[0].Op = Replaced },
		"path":            func(cs []Change) { cs[0].Path = "/etc/ab" },
		"old mode":        func(cs []Change) { cs[0].Old.Mode = 0 },
		"old content":     func(cs []Change) { cs[0].Old.SHA256 = "03" },
		"new mode":        func(cs []Change) { cs[0].New.Mode = 0 },
		"new uid":         func(cs []Change) { cs[0].New.UID = 9 },
		"new gid":         func(cs []Change) { cs[0].New.GID = 9 },
		"new content":     func(cs []Change) { cs[0].New.SHA256 = "03" },
		"new type":        func(cs []Change) { cs[0].New.Type = Directory },
		"target":          func(cs []Change) { cs[1].New.Target = "/y" },
		"old against new": func(cs []Change) { cs[2].Old, cs[2].New = cs[2].New, cs[2].Old },
		"no old":          func(cs []Change) { cs[0].Old = nil },
	} {
		cs := sampleChanges()
		edit(cs)
		d := Digest(cs)
		if other, taken := seen[d]; taken {
			t.Errorf("%s has the same digest as %s", name, other)
		}
		seen[d] = name
	}
}

func TestDigestLeavesOutTimesAndIdentity(t *testing.T) {
	want := Digest(sampleChanges())
	cs := sampleChanges()
	cs[0].Old.MTime, cs[0].Old.ID, cs[0].Old.Links, cs[0].Old.Size = 1, &Identity{1, 2, 3}, 4, 5
	if got := Digest(cs); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
}

// Moving a byte across the border of two fields gives another list.
func TestDigestFieldsDoNotRunTogether(t *testing.T) {
	a := []Change{{Kind: KindFile, Op: Added, Path: "/ab", New: &Entry{Type: Symlink, SHA256: "x", Target: "yz"}}}
	b := []Change{{Kind: KindFile, Op: Added, Path: "/ab", New: &Entry{Type: Symlink, SHA256: "xy", Target: "z"}}}
	if Digest(a) == Digest(b) {
		t.Error("two lists share a digest")
	}
}

func TestSame(t *testing.T) {
	base := func() *Entry { return &Entry{Type: Regular, Mode: 0o644, UID: 1, GID: 2, SHA256: "01", Target: "t"} }
	for _, tt := range []struct {
		name string
		edit func(*Entry)
		want bool
	}{
		{"equal", func(*Entry) {}, true},
		{"another time", func(e *Entry) { e.MTime = 7 }, true},
		{"another inode", func(e *Entry) { e.ID = &Identity{Ino: 7} }, true},
		{"another link count", func(e *Entry) { e.Links = 7 }, true},
		{"another type", func(e *Entry) { e.Type = Directory }, false},
		{"another mode", func(e *Entry) { e.Mode = 0o600 }, false},
		{"another owner", func(e *Entry) { e.UID = 7 }, false},
		{"another group", func(e *Entry) { e.GID = 7 }, false},
		{"other content", func(e *Entry) { e.SHA256 = "02" }, false},
		{"another target", func(e *Entry) { e.Target = "u" }, false},
	} {
		e := base()
		tt.edit(e)
		if got := base().Same(e); got != tt.want {
			t.Errorf("%s: Same = %v, want %v", tt.name, got, tt.want)
		}
	}
	var none *Entry
	if !none.Same(nil) || none.Same(base()) || base().Same(nil) {
		t.Error("an absent entry is the same as an absent one and nothing else")
	}
}
