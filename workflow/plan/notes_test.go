package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/change"
)

// host is an origin with a number of names; inode 0 is one that is not known.
func host(inode, links uint64) *change.Entry {
	e := &change.Entry{Type: change.Regular, SHA256: hashOf("o"), Links: links, Size: 1}
	if inode > 0 {
		e.ID = &change.Identity{Dev: 1, Ino: inode, CTime: int64(links)}
	}
	return e
}

// want is wanted content, as another name of first where that is given.
func want(content string, first change.Path) *change.Entry {
	return &change.Entry{Type: change.Regular, SHA256: hashOf(content), Size: 1, Link: first}
}

func TestNotesOnHardLinks(t *testing.T) {
	chmod := want("o", "")
	chmod.Mode = 0o600
	fifo := &change.Entry{Type: change.Fifo}
	modified := func(path change.Path, old, new *change.Entry) change.Change {
		return change.Change{Op: change.Modified, Path: path, Old: old, New: new}
	}
	for _, tt := range []struct {
		name string
		cs   []change.Change
		want []string
	}{
		{
			"one name is edited, others are not listed",
			[]change.Change{
				modified("/a\n", host(0, 2), want("n", "")),
				modified("/b", host(0, 1), want("n", "")),
				{Op: change.Deleted, Path: "/c", Old: host(0, 4)},
				{Op: change.Added, Path: "/d", New: want("n", "")},
			},
			[]string{
				`/a\x0a is one file with 1 other name on the host, which keeps the old content`,
				"/c is one file with 3 other names on the host, which keep the old content",
			},
		},
		{
			"one name gets another mode",
			[]change.Change{modified("/a", host(1, 2), chmod)},
			[]string{"/a is one file with 1 other name on the host, which keeps the old mode, owner and attributes"},
		},
		{
			"all names stay one file with other content",
			[]change.Change{modified("/a", host(1, 2), want("n", "")), modified("/b", host(1, 2), want("n", "/a"))},
			[]string{"/a and /b stay one file"},
		},
		{
			"two of three names stay one file",
			[]change.Change{modified("/a", host(1, 3), want("n", "")), modified("/b", host(1, 3), want("n", "/a"))},
			[]string{
				"/a and /b stay one file",
				"/a is one file with 1 other name on the host, which keeps the old content",
				"/b is one file with 1 other name on the host, which keeps the old content",
			},
		},
		{
			"files become one",
			[]change.Change{
				modified("/a", host(1, 1), want("o", "")), modified("/b", host(2, 1), want("o", "/a")),
				{Op: change.Added, Path: "/c", New: want("o", "/a")},
			},
			[]string{"/a, /b and /c become one file"},
		},
		{
			"many files become one",
			[]change.Change{
				{Path: "/a", New: want("n", "")},
				{Path: "/b", New: want("n", "/a")},
				{Path: "/c", New: want("n", "/a")},
				{Path: "/d", New: want("n", "/a")},
				{Path: "/e", New: want("n", "/a")},
				{Path: "/f", New: want("n", "/a")},
			},
			[]string{"/a, /b, /c and 3 more names become one file"},
		},
		{
			"one file becomes two",
			[]change.Change{modified("/a", host(1, 2), want("n", "")), modified("/b", host(1, 2), want("m", ""))},
			[]string{"/a and /b are one file on the host and become different files"},
		},
		{
			"one of two names is edited, the other deleted",
			[]change.Change{modified("/a", host(1, 2), want("n", "")), {Op: change.Deleted, Path: "/b", Old: host(1, 2)}},
			nil,
		},
		{
			"one of two names becomes something else",
			[]change.Change{modified("/a", host(1, 2), want("n", "")), {Op: change.Replaced, Path: "/b", Old: host(1, 2), New: fifo}},
			nil,
		},
		{
			"files that only look alike",
			[]change.Change{modified("/a", host(1, 1), want("n", "")), modified("/b", host(2, 1), want("n", ""))},
			nil,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Notes(tt.cs)); d != "" {
				t.Errorf("notes (-want +got):\n%s", d)
			}
		})
	}
}

func TestNotesOnCopiesOfLargeFiles(t *testing.T) {
	sized := func(n int64, mode uint32, content string) *change.Entry {
		return &change.Entry{Type: change.Regular, Mode: mode, Size: n, SHA256: hashOf(content), Links: 1}
	}
	got := Notes([]change.Change{
		{Path: "/chmod", Old: sized(3<<29, 0o644, "o"), New: sized(3<<29, 0o600, "o")},
		{Path: "/edited", Old: sized(3<<29, 0o644, "o"), New: sized(3<<29, 0o600, "n")},
		{Path: "/new", New: sized(3<<29, 0o600, "n")},
		{Path: "/small", Old: sized(large, 0o644, "o"), New: sized(large, 0o600, "o")},
	})
	if d := cmp.Diff([]string{"/chmod is 1.5 GiB and is copied whole, although only its mode, owner or attributes change"}, got); d != "" {
		t.Errorf("notes (-want +got):\n%s", d)
	}
}

func TestLabelNoteCountsPaths(t *testing.T) {
	const rest = " the security label of the place, not the one of the view; no policy that enforces labels was tested with it"
	if got, want := LabelNote(make([]change.Change, 1)), "1 changed path takes"+rest; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := LabelNote(make([]change.Change, 2)), "2 changed paths take"+rest; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
