package netsandbox_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/states"
)

var update = flag.Bool("update", false, "rewrite what is generated in documents")

// block is a generated part of a document, between two lines that stay.
type block struct {
	file, begin, end string
	text             func() string
}

var blocks = []block{
	{"docs/architecture.md", "<!-- generated: states -->\n```mermaid\n", "```\n<!-- end -->", states.Mermaid},
	{"docs/architecture.md", "<!-- generated: layers -->\n", "<!-- end -->", layerTable},
	{"states/doc.go", "// # Table\n//\n", "package states", tableComment},
}

// TestGeneratedPartsOfDocuments: what can be drawn from code is never written
// by hand, so it cannot rot.
func TestGeneratedPartsOfDocuments(t *testing.T) {
	for _, b := range blocks {
		t.Run(b.file+" "+strings.Fields(b.begin)[2], func(t *testing.T) {
			whole, err := os.ReadFile(b.file)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, ok := strings.Cut(string(whole), b.begin)
			got, tail, closed := strings.Cut(rest, b.end)
			if !ok || !closed {
				t.Fatalf("%s has no part between %q and %q", b.file, b.begin, b.end)
			}
			want := b.text()
			if *update && got != want {
				if err := os.WriteFile(b.file, []byte(head+b.begin+want+b.end+tail), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s is not what the code says (-want +got), make golden rewrites it:\n%s", b.file, diff)
			}
		})
	}
}

func tableComment() string {
	var b strings.Builder
	for line := range strings.Lines(states.Text()) {
		b.WriteString("//\t" + line)
	}
	return b.String()
}

func layerTable() string {
	var b strings.Builder
	b.WriteString("| package | may import, of ours | because |\n| --- | --- | --- |\n")
	for _, l := range layers {
		if l.of == "" || l.reason == "" {
			continue
		}
		may := "nothing"
		if len(l.may) > 0 {
			may = "`" + strings.Join(l.may, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", l.of, may, l.reason)
	}
	return b.String()
}

// TestDocumentsPointAtWhatIsThere: every file and test that a document names.
func TestDocumentsPointAtWhatIsThere(t *testing.T) {
	tests := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	var documents []string
	walk(t, func(name string) {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range test.FindAllStringSubmatch(string(text), -1) {
				tests[m[1]] = true
			}
		case strings.HasSuffix(name, ".txtar"):
			tests[name[strings.LastIndex(name, "/")+1:]] = true
		case strings.HasSuffix(name, ".md"):
			documents = append(documents, name)
		}
	})
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*|[a-z_0-9]+\\.txtar)`")
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	for _, doc := range documents {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			if !tests[m[1]] {
				t.Errorf("%s names %s, which does not exist", doc, m[1])
			}
		}
		dir := doc[:strings.LastIndex(doc, "/")+1]
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(dir + m[1]); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}

// TestTranscriptIsARun: every command of the transcript in README.md stands in a
// script, and so does a pattern for every line that it shows.
func TestTranscriptIsARun(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- transcript: (\\S+) -->\n```console\n(.*?)```").FindSubmatch(readme)
	if m == nil {
		t.Fatal("README.md has no transcript")
	}
	script, err := os.ReadFile(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	var patterns []*regexp.Regexp
	for _, p := range regexp.MustCompile(`(?m)^std(?:out|err) '(.*)'$`).FindAllSubmatch(script, -1) {
		patterns = append(patterns, regexp.MustCompile(strings.ReplaceAll(string(p[1]), "''", "'")))
	}
	local := strings.NewReplacer("/srv/edge", "$HOST", "example-proxy ", "lab serve ")
	lines := strings.Split(strings.TrimSpace(string(m[2])), "\n")
	if len(lines) > 30 {
		t.Errorf("the transcript has %d lines, want 30 at most", len(lines))
	}
	for _, line := range lines {
		command, ok := strings.CutPrefix(line, "# ")
		switch {
		case ok && !regexp.MustCompile(`(?m)^(exec|exits \d+) `+regexp.QuoteMeta(local.Replace(command))+`$`).Match(script):
			t.Errorf("%s does not run %q", m[1], command)
		case !ok && !slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(line) }):
			t.Errorf("%s has no pattern for %q", m[1], line)
		}
	}
}
