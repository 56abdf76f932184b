package netsandbox_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layer is one row of the table of allowed imports. Patterns are package paths
// below the module; "x/..." is x and everything below it.
type layer struct {
	of     string
	may    []string // of our own packages
	reason string
}

// layers is the table of docs/architecture.md. The first row that matches a
// package is its row.
var layers = []layer{
	{"states", nil, "what an environment can be must be readable without knowing how it moves"},
	{"guards/circuit", nil, "pure data and judgement, so that everything may speak of circuits"},
	{"guards/authority", nil, "pure data, so that everything may speak of grants"},
	{"guards", []string{"states", "guards/..."}, "a guard decides over recorded facts and can reach nothing else"},
	{"backends/change", nil, "the vocabulary of differences is a leaf"},
	{"backends", []string{"backends/change"}, "the contract knows the vocabulary and no implementation"},
	{"backends/nstest", nil, "tests of every layer use it"},
	{"backends/nstest/...", []string{"backends/nstest", "backends/nstest/..."}, "what tests are made with knows nothing of what they test"},
	{"backends/backendtest", []string{"backends", "backends/change", "backends/nstest"}, "the suite knows the contract, not who passes it"},
	{"backends/internal/...", []string{"backends", "backends/change", "backends/internal/..."}, "shared mechanism knows no implementation"},
	{
		"backends/linuxns/...",
		[]string{"backends", "backends/change", "backends/internal/...", "backends/linuxns/..."},
		"a view cannot be turned into a host: it reaches neither the host adapters nor the journal",
	},
	{
		"backends/hostfiles/...",
		[]string{"backends", "backends/change", "backends/internal/...", "backends/hostfiles/..."},
		"the adapter does what a transaction says and decides nothing",
	},
	{"backends/...", []string{"backends", "backends/change", "backends/internal/..."}, "an implementation knows the contract, the vocabulary and shared mechanism"},
	{"workflow/clock", nil, "time is a leaf"},
	{"workflow/execlog", []string{"backends/change", "workflow/clock"}, "exec appends to it on its way into the view and must not pay for a store"},
	{"workflow/txn", []string{"backends", "backends/change", "workflow/clock"}, "recover undoes with the journal unreadable"},
	{"workflow/lease/...", []string{"workflow/clock", "workflow/lease/..."}, "the keeper decides when to undo and is told how"},
	{
		"workflow/...",
		[]string{"states", "guards/...", "backends", "backends/change", "workflow/..."},
		"steps know the contract; only cmd names a concrete backend",
	},
	{"harness/classify", nil, "the classifier runs in front of every shell command and opens no store"},
	{"harness/...", []string{"states", "guards/...", "backends", "backends/change", "workflow/...", "harness/..."}, "the harness calls the workflow as cmd does"},
	{"cmd/...", []string{"..."}, ""},
	{"tools/...", []string{"states", "guards/..."}, "tools read the machine, they do not run it"},
	{"", nil, "the root has no code"},
}

func matches(pattern, pkg string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "..."); ok {
		return prefix == "" || pkg+"/" == prefix || strings.HasPrefix(pkg, prefix)
	}
	return pattern == pkg
}

// listed is one package as `go list -json` knows it.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// ours returns the path below the module, and whether the package is of it.
func ours(pkg string) (string, bool) {
	if pkg == module {
		return "", true
	}
	return strings.CutPrefix(pkg, module+"/")
}

func TestImportsKeepTheLayers(t *testing.T) {
	for _, p := range list(t, "./...") {
		name, _ := ours(p.ImportPath)
		i := slices.IndexFunc(layers, func(l layer) bool { return matches(l.of, name) })
		if i < 0 {
			t.Errorf("%s has no row in the table of layers", name)
			continue
		}
		for _, imp := range p.Imports {
			dep, ok := ours(imp)
			if ok && !slices.ContainsFunc(layers[i].may, func(m string) bool { return matches(m, dep) }) {
				t.Errorf("%s imports %s: %s", name, dep, layers[i].reason)
			}
		}
	}
}

// TestPurePackagesDoNoIO: what claims to do no I/O cannot.
func TestPurePackagesDoNoIO(t *testing.T) {
	for _, p := range list(t, "./states", "./guards/...", "./backends/change") {
		for _, dep := range p.Imports {
			if slices.Contains([]string{"os", "net", "os/exec", "syscall", "io/ioutil", "database/sql"}, dep) {
				t.Errorf("%s imports %s; it decides over data that others read", p.ImportPath, dep)
			}
		}
	}
}

// TestHotPathStaysLight: exec runs before the rest of the program initialises
// (docs/decisions/004), and everything it imports is initialised before it. What
// is listed was looked at; a new dependency of it is a decision.
func TestHotPathStaysLight(t *testing.T) {
	allowed := []string{
		"cmd/netsandbox/internal/hot", "backends", "backends/change", "backends/linuxns/client",
		"backends/linuxns/internal/envdir", "backends/linuxns/internal/wire", "workflow/clock", "workflow/execlog",
		"backends/internal/regular", "workflow/statedir", // a few calls of the system, no tables
	}
	foreign := []string{"golang.org/x/sys/unix", "golang.org/x/term", "github.com/aymanbagabas/go-udiff", "github.com/aymanbagabas/go-udiff/lcs"}
	heavy := []string{"net", "net/http", "crypto/tls", "database/sql", "text/template", "os/user", "testing"}
	for _, dep := range list(t, "-deps", "./cmd/netsandbox/internal/hot") {
		name, mine := ours(dep.ImportPath)
		switch {
		case mine && !slices.Contains(allowed, name):
			t.Errorf("exec's hot path imports %s", name)
		case !mine && strings.Contains(dep.ImportPath, ".") && !strings.HasPrefix(dep.ImportPath, "vendor/") &&
			!strings.HasPrefix(dep.ImportPath, "crypto/internal/") && !slices.Contains(foreign, dep.ImportPath):
			t.Errorf("exec's hot path imports %s", dep.ImportPath)
		case slices.Contains(heavy, dep.ImportPath):
			t.Errorf("exec's hot path imports %s, which costs more than it does", dep.ImportPath)
		}
	}
}
