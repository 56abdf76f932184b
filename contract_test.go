package netsandbox_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// documents are the types of the JSON contract by the kind in their schema.
// Version is printed by the command alone, which tests it.
var documents = map[string]any{
	"created": report.Created{}, "environment": report.Environment{}, "status": report.Status{}, "inspect": report.Inspect{},
	"staged": report.Staged{}, "changes": report.Changes{}, "diff": report.Diff{}, "check": report.Check{}, "plan": report.Plan{},
	"dry-run": report.DryRun{}, "circuits": report.Circuits{}, "connections": report.Circuits{}, "grant": report.Grant{}, "moved": report.Moved{},
	"applied": report.Applied{}, "transaction": report.Transaction{}, "recovered": report.Recovered{}, "pruned": report.Pruned{}, "event": report.Event{},
	"doctor": report.Doctor{}, "states": report.States{}, "error": report.Error{},
}

var example = regexp.MustCompile("(?s)```json\n(.*?)```")

// examples returns the JSON examples of a document, those in arrays one by one,
// with the heading above each.
func examples(t *testing.T, file string) (headings []string, texts []json.RawMessage) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		heading, _, _ := strings.Cut(section, "\n")
		for _, m := range example.FindAllStringSubmatch(section, -1) {
			many := []json.RawMessage{json.RawMessage(m[1])}
			if strings.HasPrefix(m[1], "[") {
				if err := json.Unmarshal([]byte(m[1]), &many); err != nil {
					t.Fatalf("%s: %s: %v", file, heading, err)
				}
			}
			for _, one := range many {
				headings, texts = append(headings, heading), append(texts, one)
			}
		}
	}
	return headings, texts
}

// strict decodes an example into the type of its schema and refuses what the
// type does not have.
func strict(text json.RawMessage) (kind string, doc any, err error) {
	var head struct{ Schema string }
	if err := json.Unmarshal(text, &head); err != nil {
		return "", nil, err
	}
	kind, ok := strings.CutPrefix(head.Schema, "netsandbox/v1/")
	if !ok {
		return "", nil, fmt.Errorf("schema %q is none of ours", head.Schema)
	}
	zero, ok := documents[kind]
	if !ok {
		return kind, nil, nil
	}
	v := reflect.New(reflect.TypeOf(zero))
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	return kind, v.Interface(), d.Decode(v.Interface())
}

func TestJSONExamplesDecode(t *testing.T) {
	shown := map[string]bool{}
	headings, texts := examples(t, "docs/json.md")
	for i, text := range texts {
		kind, _, err := strict(text)
		if err != nil {
			t.Errorf("docs/json.md: %s: %v", headings[i], err)
		}
		if kind != headings[i] {
			t.Errorf("docs/json.md: below %s stands an example of %s", headings[i], kind)
		}
		shown[kind] = true
	}
	for kind := range documents {
		if !shown[kind] {
			t.Errorf("docs/json.md has no example of %s", kind)
		}
	}
}

// TestEveryJSONFieldIsShown: a field that no example and no sentence has is one
// that no reader can rely on.
func TestEveryJSONFieldIsShown(t *testing.T) {
	text, err := os.ReadFile("docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{}
	var visit func(t *testing.T, in string, typ reflect.Type)
	visit = func(t *testing.T, in string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || !strings.HasPrefix(typ.PkgPath(), module) {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue // never in a document
			}
			if name != "" && !strings.Contains(string(text), `"`+name+`"`) && !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("docs/json.md shows no %q, which %s has", name, in)
			}
			visit(t, in+"."+f.Name, f.Type)
		}
	}
	for kind, zero := range documents {
		visit(t, kind, reflect.TypeOf(zero))
	}
}

// TestEveryDocumentIsPartOfTheContract: a type in report with a schema comment
// must be in the map above.
func TestEveryDocumentIsPartOfTheContract(t *testing.T) {
	schema := regexp.MustCompile(`// netsandbox/v1/([a-z-]+)`)
	walk(t, func(name string) {
		if !strings.HasPrefix(name, "workflow/report/") || strings.HasSuffix(name, "_test.go") {
			return
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range schema.FindAllStringSubmatch(string(text), -1) {
			if _, ok := documents[m[1]]; !ok {
				t.Errorf("%s: %s is not in the contract", name, m[1])
			}
		}
	})
}

func TestEventExamples(t *testing.T) {
	headings, texts := examples(t, "docs/events.md")
	var shown []string
	for i, text := range texts {
		kind, doc, err := strict(text)
		if err != nil || kind != "event" {
			t.Errorf("docs/events.md: %s: %s: %v", headings[i], kind, err)
			continue
		}
		e := doc.(*report.Event)
		if e.Event != headings[i] {
			t.Errorf("docs/events.md: below %s stands %s", headings[i], e.Event)
		}
		if from, ok := e.Data["from"].(string); ok && e.Event == workflow.EventStateMoved {
			on, _ := e.Data["on"].(string)
			if _, found := states.Find(states.State(from), states.Trigger(on)); !found {
				t.Errorf("docs/events.md: no environment moves from %s on %s", from, on)
			}
		}
		shown = append(shown, e.Event)
	}
	for _, name := range workflow.Events() {
		if !slices.Contains(shown, name) {
			t.Errorf("docs/events.md has no example of %s", name)
		}
	}
	for _, name := range shown {
		if !slices.Contains(workflow.Events(), name) {
			t.Errorf("docs/events.md documents %s, which nothing emits", name)
		}
	}
}

// TestEventsAreListed: the constants, the list of them, and what the code says.
func TestEventsAreListed(t *testing.T) {
	constant := regexp.MustCompile(`(?m)^\t(Event[A-Z]\w+)\s+= "([a-z]+\.[a-z]+)"$`)
	text, err := os.ReadFile("workflow/events.go")
	if err != nil {
		t.Fatal(err)
	}
	all := constant.FindAllStringSubmatch(string(text), -1)
	if len(all) != len(workflow.Events()) {
		t.Errorf("%d event constants, %d in Events()", len(all), len(workflow.Events()))
	}
	used := map[string]bool{}
	walk(t, func(name string) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && name != "workflow/events.go" {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range all {
				used[m[1]] = used[m[1]] || strings.Contains(string(text), m[1])
			}
		}
	})
	for _, m := range all {
		if !slices.Contains(workflow.Events(), m[2]) {
			t.Errorf("%s is not in Events()", m[2])
		}
		if !used[m[1]] {
			t.Errorf("nothing emits %s", m[1])
		}
	}
}
