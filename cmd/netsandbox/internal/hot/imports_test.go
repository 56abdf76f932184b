package hot

import (
	"os/exec"
	"strings"
	"testing"
)

// What exec may import. Each package that initialises before the command runs is
// paid for by every command; a longer list needs a measurement, not a reason.
var light = map[string]bool{
	// backends/change renders diffs; 40 µs, measured with GODEBUG=inittrace=1.
	"github.com/aymanbagabas/go-udiff":     true,
	"github.com/aymanbagabas/go-udiff/lcs": true,

	"github.com/netsandbox/netsandbox/backends":                         true,
	"github.com/netsandbox/netsandbox/backends/change":                  true,
	"github.com/netsandbox/netsandbox/backends/internal/regular":        true,
	"github.com/netsandbox/netsandbox/backends/linuxns/client":          true,
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir": true,
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire":   true,
	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/hot":      true,
	"github.com/netsandbox/netsandbox/workflow/clock":                   true,
	"github.com/netsandbox/netsandbox/workflow/execlog":                 true,
	"github.com/netsandbox/netsandbox/workflow/statedir":                true,
	"golang.org/x/sys/unix":                                             true,
	"golang.org/x/term":                                                 true,
}

// Of the standard library these initialise slowly or pull in what does.
var heavy = map[string]bool{
	"net": true, "net/http": true, "os/exec": true, "os/user": true, "text/template": true,
	"database/sql": true, "log/slog": true, "flag": true, "crypto/tls": true, "math/rand": true, "encoding/gob": true,
}

func TestImportsStayLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if .Standard}}std{{else}}own{{end}} {{.ImportPath}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	n := 0
	for l := range strings.Lines(string(out)) {
		kind, path, _ := strings.Cut(strings.TrimSpace(l), " ")
		n++
		if kind == "own" && !light[path] {
			t.Errorf("exec imports %s", path)
		}
		if kind == "std" && heavy[path] {
			t.Errorf("exec imports %s of the standard library", path)
		}
	}
	if n < len(light) {
		t.Errorf("go list named %d packages", n)
	}
}
