package netsandbox_test

import (
	"bytes"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/netsandbox/netsandbox"

// walk calls f for every file of the tree that a clone has, with its slash path.
func walk(t *testing.T, f func(name string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "bin" || name == "dist"):
			return fs.SkipDir
		case d.Type().IsRegular():
			f(filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// source is one parsed Go file.
type source struct {
	name  string
	lines int
	file  *ast.File
	tag   constraint.Expr // nil without one
}

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// linux reports whether the file is compiled for Linux only.
func (s source) linux() bool {
	base := strings.TrimSuffix(strings.TrimSuffix(path.Base(s.name), ".go"), "_test")
	if strings.HasSuffix(base, "_linux") || strings.Contains(base, "_linux_") {
		return true
	}
	return s.tag != nil && !s.tag.Eval(func(tag string) bool { return tag != "linux" })
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	walk(t, func(name string) {
		if path.Ext(name) != ".go" {
			return
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		s := source{name: name, lines: bytes.Count(text, []byte("\n")), file: f}
		for _, group := range f.Comments {
			for _, c := range group.List {
				if constraint.IsGoBuild(c.Text) && c.Pos() < f.Package {
					if s.tag, err = constraint.Parse(c.Text); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
			}
		}
		all = append(all, s)
	})
	return all
}

// TestEveryPackageSaysWhatItIsFor: once, so that there is one place to correct.
func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	docs := map[string][]string{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		dir := path.Dir(s.name)
		docs[dir] = append(docs[dir], nil...)
		if s.file.Doc != nil && len(strings.Fields(s.file.Doc.Text())) > 4 {
			docs[dir] = append(docs[dir], path.Base(s.name))
		}
	}
	for dir, files := range docs {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments %v, want one: what it is for, what it refuses, where its neighbours are", dir, len(files), files)
		}
	}
}

func TestFilesStayReadable(t *testing.T) {
	var lengths []int
	for _, s := range sources(t) {
		if s.lines > 500 {
			t.Errorf("%s has %d lines; a file is one case, and 500 lines hold several: split it", s.name, s.lines)
		}
		lengths = append(lengths, s.lines)
	}
	slices.Sort(lengths)
	if median := lengths[len(lengths)/2]; median >= 200 {
		t.Errorf("the median file has %d lines, want fewer than 200", median)
	}
}

// TestDirectoriesAreNounsOfTheDomain: what has no name of its own has no place
// of its own.
func TestDirectoriesAreNounsOfTheDomain(t *testing.T) {
	for _, s := range sources(t) {
		for _, part := range strings.Split(path.Dir(s.name), "/") {
			if slices.Contains([]string{"util", "utils", "common", "helpers", "misc", "lib", "pkg"}, part) {
				t.Errorf("%s: %q says nothing about what is in it", s.name, part)
			}
		}
		if strings.HasPrefix(s.name, "internal/") {
			t.Errorf("%s: everything could import a root internal, so nothing would keep the layers apart", s.name)
		}
	}
}

// TestNoNFTablesOutsideLinux: google/nftables does not compile for darwin.
func TestNoNFTablesOutsideLinux(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.file.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(p, "github.com/google/nftables") && !s.linux() {
				t.Errorf("%s imports %s, which does not compile elsewhere; its types stay in _linux.go files", s.name, p)
			}
		}
	}
}

// TestSkipsSayWhy: a skip that names nothing makes a run look full that was not.
func TestSkipsSayWhy(t *testing.T) {
	silent := regexp.MustCompile(`\bt\.Skip(Now)?\((""|)\)`)
	walk(t, func(name string) {
		if strings.HasSuffix(name, "_test.go") && name != "shape_test.go" {
			if text, err := os.ReadFile(name); err != nil {
				t.Fatal(err)
			} else if m := silent.Find(text); m != nil {
				t.Errorf("%s: %s does not say what is missing", name, m)
			}
		}
	})
}

// TestNothingOfOneMachine: the tree builds anywhere, so it names no path, mirror
// or tool of the place it was written in. The words are put together here, so
// that this file does not contain them.
func TestNothingOfOneMachine(t *testing.T) {
	forbidden := regexp.MustCompile(strings.Join([]string{
		`(^|[^\w/])/` + `work/`, `/` + `farm/`, `\.\./` + `shared`, `far` + `m-[a-z]+`,
		`GOPROXY=` + `[a-z]+://`, `proxy\.` + `golang\.org`, `(?m)^deb +` + `[a-z]+://`, `/tm` + `p/nsb`,
	}, "|"))
	walk(t, func(name string) {
		if name == "go.sum" {
			return
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return // not text
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := forbidden.FindString(line); m != "" {
				t.Errorf("%s:%d: %q belongs to one machine", name, i+1, m)
			}
		}
	})
}
