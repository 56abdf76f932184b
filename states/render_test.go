package states_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/netsandbox/netsandbox/states"
)

var update = flag.Bool("update", false, "rewrite the golden drawings")

func TestDrawings(t *testing.T) {
	for name, draw := range map[string]func() string{
		"states.txt": Text, "states.mmd": Mermaid, "states.dot": DOT,
	} {
		t.Run(name, func(t *testing.T) {
			got := draw()
			for range 5 {
				if again := draw(); again != got {
					t.Fatalf("two drawings differ:\n%s", cmp.Diff(got, again))
				}
			}
			file := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("drawing (-want +got), -update rewrites it:\n%s", diff)
			}
		})
	}
}

// TestDrawingsSayEveryMove keeps folding from losing a move: each must be found
// under its own state or under "any but trial".
func TestDrawingsSayEveryMove(t *testing.T) {
	text, mermaid, dot := Text(), Mermaid(), DOT()
	for _, e := range Table() {
		from := `(` + string(e.From) + `|any.but.trial)`
		if e.From == Trial {
			from = string(e.From)
		}
		for drawing, pattern := range map[string]string{
			text:    `(?m)^` + from + ` +` + string(e.On) + ` +` + string(e.To) + ` .*` + guardList(e, ` `),
			mermaid: `(?m)^ +` + from + ` --> ` + string(e.To) + ` : ` + string(e.On) + `.*` + guardList(e, `<br/>`),
			dot:     `(?m)^ +` + from + ` -> ` + string(e.To) + ` \[label="` + string(e.On) + `.*` + guardList(e, `\\n`),
		} {
			if !regexp.MustCompile(pattern).MatchString(drawing) {
				t.Errorf("%s is not in the drawing that begins %.20q", e, drawing)
			}
		}
	}
}

func guardList(e Edge, sep string) string {
	parts := make([]string, len(e.Guards))
	for i, g := range e.Guards {
		parts[i] = string(g)
	}
	return strings.Join(parts, sep)
}
