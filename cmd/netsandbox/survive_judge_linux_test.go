package main

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// aspects is what can be lost, in the order in which it is told.
var aspects = []string{
	"missing", "not deleted", "whiteouts left as devices", "type", "content", "target", "mode", "owner", "ACL", "capability",
	"attributes", "hard links", "holes", "time",
}

// lost names what of a wanted picture is not in another. A directory that was to
// stay as it is has the time of the last change in it, on any host.
func lost(before, wanted, got []string) []string {
	kept := keptDirectories(before, wanted)
	want, have := byPath(undate(wanted, kept)), byPath(undate(samePlaces(wanted, got), kept))
	found := map[string]bool{}
	for path, w := range want {
		if h, ok := have[path]; ok {
			compare(w, h, found)
		} else {
			found["missing"] = true
		}
	}
	for path, h := range have {
		if _, ok := want[path]; !ok {
			found[surplus(h)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(aspects), func(a string) bool { return !found[a] })
}

func surplus(lines []string) string {
	if strings.HasPrefix(lines[0], "character device") {
		return "whiteouts left as devices"
	}
	return "not deleted"
}

// byPath splits a picture into what it says of each path.
func byPath(lines []string) map[string][]string {
	all := map[string][]string{}
	for _, l := range lines {
		path, rest, _ := strings.Cut(l, " ")
		if strings.HasPrefix(l, `"`) { // no quote in a quoted path is bare
			end := strings.Index(l[1:], `" `)
			path, rest = l[:end+2], l[end+3:]
		}
		if _, names, ok := strings.Cut(rest, ": "); ok && strings.HasPrefix(rest, "links ") && names == path {
			continue // its other names are elsewhere: a first backup, or a lower layer's
		}
		if strings.HasPrefix(rest, "flag ") {
			continue // the host's own: no view can set it
		}
		all[path] = append(all[path], rest)
	}
	return all
}

// compare adds in what one object differs.
func compare(want, got []string, found map[string]bool) {
	if slices.Equal(want, got) {
		return
	}
	w, h := parseOwn(want[0]), parseOwn(got[0])
	if w.kind != h.kind {
		found[map[bool]string{true: "whiteouts left as devices", false: "type"}[h.kind == "character"]] = true
		return
	}
	// What has holes is told by its blocks, what has none by its bytes.
	if w.told != h.told {
		found["holes"] = true
		w.content, h.content = "", ""
	}
	for aspect, differs := range map[string]bool{
		"content": w.content != h.content, "target": w.target != h.target, "mode": w.mode != h.mode, "owner": w.owner != h.owner, "time": w.time != h.time,
	} {
		if differs {
			found[aspect] = true
		}
	}
	for _, l := range slices.Concat(want[1:], got[1:]) {
		if !slices.Contains(want, l) || !slices.Contains(got, l) {
			found[aspectOf(l)] = true
		}
	}
}

func aspectOf(line string) string {
	for prefix, aspect := range map[string]string{
		"xattr system.posix_acl": "ACL", "xattr security.capability": "capability", "links ": "hard links", strings.TrimSpace(manifest.Data): "holes",
	} {
		if strings.HasPrefix(line, prefix) {
			return aspect
		}
	}
	return "attributes"
}

// own is an object's own line of a picture.
type own struct{ kind, mode, told, content, target, owner, time string }

func parseOwn(line string) own {
	line, time, _ := strings.Cut(line, manifest.MTime)
	at := strings.LastIndexByte(line, ' ')
	o := own{time: time, owner: line[at+1:]}
	line = line[:at]
	o.kind, line, _ = strings.Cut(line, " ")
	if o.kind == "symlink" {
		o.target = line
		return o
	}
	o.mode, line, _ = strings.Cut(line, " ")
	if o.kind == "file" { // "size 4 sha256 …"
		f := strings.Fields(line)
		o.told, o.content = f[2], f[1]+" "+f[3]
	}
	return o
}

// bookkeeping counts the objects of a tree that carry overlayfs's own attributes.
func bookkeeping(t *testing.T, root string) int {
	t.Helper()
	n := 0
	buf := make([]byte, 64<<10)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		size, err := unix.Llistxattr(path, buf)
		if err == nil && strings.Contains(string(buf[:size]), "overlay.") {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLost(t *testing.T) {
	const dir = ". directory 0755 0:0 mtime 5.0"
	for _, tc := range []struct {
		name              string
		before, want, got []string
		lost              []string
	}{
		{"nothing", []string{dir}, []string{dir, "./a file 0644 size 1 sha256 aa 0:0 mtime 1.0"}, []string{". directory 0755 0:0 mtime 9.0", "./a file 0644 size 1 sha256 aa 0:0 mtime 1.0"}, nil},
		{
			"all of one file", nil,
			[]string{"./a file 0644 size 1 sha256 aa 0:0 mtime 1.0", "./a xattr user.k v", "./a links 2: ./a ./b"},
			[]string{"./a file 0600 size 1 sha256 bb 1:0 mtime 2.0", `./a xattr system.posix_acl_access ""`},
			[]string{"content", "mode", "owner", "ACL", "attributes", "hard links", "time"},
		},
		{"holes", nil, []string{"./a file 0644 size 9 blocks aa 0:0 mtime 1.0", "./a data 0+1"}, []string{"./a file 0644 size 9 sha256 bb 0:0 mtime 1.0"}, []string{"holes"}},
		{"a quoted name", nil, []string{`"./a b" symlink to "x y" 0:0 mtime 1.0`}, []string{`"./a b" symlink to "x z" 0:0 mtime 1.0`}, []string{"target"}},
		{
			"names", nil,
			[]string{"./a fifo 0644 0:0 mtime 1.0", "./b fifo 0600 0:0 mtime 1.0"},
			[]string{"./a socket 0644 0:0 mtime 1.0", "./c fifo 0600 0:0 mtime 1.0", "./d character device 0000 0:0 0:0 mtime 1.0"},
			[]string{"missing", "not deleted", "whiteouts left as devices", "type"},
		},
	} {
		if got := lost(tc.before, tc.want, tc.got); !slices.Equal(got, tc.lost) {
			t.Errorf("%s: %q is lost, want %q", tc.name, got, tc.lost)
		}
	}
}
