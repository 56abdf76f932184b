package fsid

import (
	"encoding/json"
	"testing"
)

func TestSource(t *testing.T) {
	disk := Source{Point: "/d", Dev: "8:1", FS: "ext4", Root: "/", ID: "uuid:1"}
	with := func(f func(*Source)) Source { s := disk; f(&s); return s }
	for _, tc := range []struct {
		name string
		now  Source
		want bool
	}{
		{"itself", disk, true},
		{"the disk under another number", with(func(s *Source) { s.Dev = "8:17" }), true},
		{"another disk under its number", with(func(s *Source) { s.ID = "uuid:2" }), false},
		{"another part of it", with(func(s *Source) { s.Root = "/sub" }), false},
		{"another place", with(func(s *Source) { s.Point = "/e" }), false},
		{"another kind", with(func(s *Source) { s.FS = "xfs" }), false},
		{"not known by its identity, by its number", with(func(s *Source) { s.ID = "" }), true},
		{"known by neither", with(func(s *Source) { s.ID, s.Dev = "", "8:17" }), false},
		{"only a place is known", Source{Point: "/d"}, true},
	} {
		if got := disk.Same(tc.now); got != tc.want || tc.now.Same(disk) != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
	one := Source{Point: "/m", Dev: "0:40", FS: "tmpfs"}
	two := Source{Point: "/m", Dev: "0:41", FS: "tmpfs"}
	if !one.Same(two) {
		t.Error("anonymous numbers told two mounts apart")
	}
}

func TestSourceKeepsBytes(t *testing.T) {
	want := Source{Point: "/a\xff\n\\b", Dev: "8:1", FS: "ext4", Root: "/\xfe", ID: "uuid:1"}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Source
	if err := json.Unmarshal(b, &got); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	old := `{"point":"/d","dev":"8:1","fs":"ext4","root":"/"}`
	if err := json.Unmarshal([]byte(old), &got); err != nil || got != (Source{Point: "/d", Dev: "8:1", FS: "ext4", Root: "/"}) {
		t.Errorf("%+v, %v", got, err)
	}
}
