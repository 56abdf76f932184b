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
	const golden = "sha256:9c3e05a7424aeb80f7b86d974b0b9645cf0009ebb567f41a3ade09678a1e486b"
	if got := Digest(sampleChanges()); got != golden {
		t.Errorf("digest %s, want %s", got, golden)
	}
	attributed := sampleChanges()
	attributed[0].New.Xattrs = map[string][]byte{"user.b": nil, "user.a": []byte("1")}
	seen := map[string]bool{golden: true}
	for _, edit := range []func(*Entry){
		func(*Entry) {},
		func(e *Entry) { e.Xattrs = map[string][]byte{"user.a": []byte("1"), "user.b": []byte("")} },
		func(e *Entry) { e.Link = "/etc/0" },
		func(e *Entry) { e.Xattrs["user.a"] = []byte("2") },
		func(e *Entry) { e.Sparse, e.MTime = true, 7 },
	} {
		edit(attributed[0].New)
		seen[Digest(attributed)] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d different digests, want 4: attributes and links count, an empty value is a value, holes and times do not count", len(seen))
	}
	const empty = "sha256:16257baa911afcb497d09b138789b6da03426ced635ee7c6bb66c9500a44adb2"
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
