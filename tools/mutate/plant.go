package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/states"
)

// switchVar names the mutant that is on.
const switchVar = "NETSANDBOX_MUTANT"

// lookup is planted into every mutated package.
const lookup = `package %s

import "os"

var mutantOn = os.Getenv("` + switchVar + `")

func mutant(id string) bool { return mutantOn == id }
`

// table is planted into package states; the original Table is renamed.
const table = `
// Table is the table less what the mutant takes away.
func Table() []Edge {
	var kept []Edge
	for _, e := range tableBeforeMutation() {
		if mutant("edge: " + e.String()) {
			continue
		}
		if mutant("else: " + e.String()) {
			e.Else = ""
		}
		var guards []Guard
		for _, g := range e.Guards {
			if !mutant("edge-guard: " + e.String() + " without " + string(g)) {
				guards = append(guards, g)
			}
		}
		e.Guards = guards
		kept = append(kept, e)
	}
	return kept
}
`

// plant writes mutated copies of the sources below dir and returns the names of
// all mutants, and the overlay file that puts the copies in place.
func plant(root, dir string) (mutants []string, overlay string, err error) {
	replace := map[string]string{}
	put := func(pkg, name, text string) error {
		file := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+"-"+name)
		replace[filepath.Join(root, pkg, name)] = file
		return os.WriteFile(file, []byte(text), 0o600)
	}

	for _, e := range states.Table() {
		mutants = append(mutants, "edge: "+e.String())
		if e.Else != "" {
			mutants = append(mutants, "else: "+e.String())
		}
		for _, g := range e.Guards {
			mutants = append(mutants, fmt.Sprintf("edge-guard: %s without %s", e, g))
		}
	}
	src, err := os.ReadFile(filepath.Join(root, "states/table.go"))
	if err != nil {
		return nil, "", err
	}
	mutated, err := once(string(src), "func Table() []Edge {", "func tableBeforeMutation() []Edge {")
	if err != nil {
		return nil, "", fmt.Errorf("states/table.go: %w", err)
	}
	if err := put("states", "table.go", mutated+table); err != nil {
		return nil, "", err
	}

	names := []string{}
	for g := range guards.All() {
		names = append(names, "guard: "+string(g))
	}
	slices.Sort(names)
	mutants = append(mutants, names...)

	for _, pkg := range []string{"states", "guards", "guards/circuit", "guards/authority"} {
		if err := put(pkg, "mutant.go", fmt.Sprintf(lookup, filepath.Base(pkg))); err != nil {
			return nil, "", err
		}
		if pkg == "states" {
			continue
		}
		found, err := conditions(root, pkg, put)
		if err != nil {
			return nil, "", err
		}
		mutants = append(mutants, found...)
	}

	overlay = filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, "", err
	}
	return mutants, overlay, os.WriteFile(overlay, b, 0o600)
}

// conditions mutates every condition in the production files of a package: with
// its mutant on, an if or a case of a switch without a tag never holds.
func conditions(root, pkg string, put func(pkg, name, text string) error) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		return nil, err
	}
	var mutants []string
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text, found, err := never(pkg+"/"+name, string(src))
		if err != nil {
			return nil, err
		}
		if name == "guard.go" && pkg == "guards" {
			// A guard that is taken away altogether holds always.
			text, err = once(text, "(r != nil) &&", `(r != nil && !mutant("guard: "+string(n))) &&`)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		if err := put(pkg, name, text); err != nil {
			return nil, err
		}
		mutants = append(mutants, found...)
	}
	return mutants, nil
}

// never wraps each condition of a file so that its mutant makes it false.
func never(name, src string) (string, []string, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		return "", nil, err
	}
	var conds []ast.Expr
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			conds = append(conds, n.Cond)
		case *ast.SwitchStmt:
			if n.Tag != nil {
				break
			}
			for _, s := range n.Body.List {
				conds = append(conds, s.(*ast.CaseClause).List...)
			}
		}
		return true
	})
	// Conditions do not nest, so replacing from the last keeps the offsets true.
	slices.SortFunc(conds, func(a, b ast.Expr) int { return int(b.Pos() - a.Pos()) })
	var mutants []string
	for _, c := range conds {
		from, to := fset.Position(c.Pos()).Offset, fset.Position(c.End()).Offset
		id := fmt.Sprintf("condition: %s:%d %s", name, fset.Position(c.Pos()).Line, src[from:to])
		src = src[:from] + fmt.Sprintf("(%s) && !mutant(%q)", src[from:to], id) + src[to:]
		mutants = append(mutants, id)
	}
	slices.Reverse(mutants)
	return src, mutants, nil
}

// once replaces text that must occur exactly once.
func once(src, old, replacement string) (string, error) {
	if n := strings.Count(src, old); n != 1 {
		return "", fmt.Errorf("%q occurs %d times, want 1", old, n)
	}
	return strings.Replace(src, old, replacement, 1), nil
}
