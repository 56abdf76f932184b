package client

import (
	"os/exec"
	"strings"
	"testing"
)

// Each of these costs every exec more than the sandbox does, in the start of the
// program alone.
var heavy = []string{
	"database/sql", "modernc.org/", "github.com/spf13/", "github.com/rs/zerolog", "gvisor.dev/",
	"github.com/google/nftables", "github.com/vishvananda/", "github.com/qmuntal/", "net", "net/http",
	"os/exec", "text/template", "github.com/netsandbox/netsandbox/workflow",
	"github.com/netsandbox/netsandbox/backends/internal/",
}

func TestHotPathStaysLight(t *testing.T) {
	for pkg, spared := range map[string]string{
		".":         "github.com/netsandbox/netsandbox/backends/internal/regular", // one open, and no table
		"../reexec": "net",                                                        // the dial of a canary, in a process that just one canary pays for
	} {
		cmd := exec.Command("go", "list", "-deps", pkg)
		cmd.Env = append(cmd.Environ(), "GOOS=linux", "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("list what %s imports: %v", pkg, err)
		}
		deps := strings.Fields(string(out))
		if len(deps) < 20 {
			t.Fatalf("%s imports only %q", pkg, deps)
		}
		for _, d := range deps {
			for _, h := range heavy {
				if d != spared && (d == h || strings.HasSuffix(h, "/") && strings.HasPrefix(d, h)) {
					t.Errorf("%s imports %s: every command in a view would pay for it", pkg, d)
				}
			}
		}
	}
}
