package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestExecEndsBeforeTheRestInitialises looks at what the runtime initialised
// when exec had already failed on an unknown environment.
func TestExecEndsBeforeTheRestInitialises(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "exec", "nobody", "--", "true")
	cmd.Args[0] = "netsandbox"
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", "NETSANDBOX_STATE_DIR="+state, "NETSANDBOX_ENV=")
	out, _ := cmd.CombinedOutput()
	if !strings.Contains(string(out), "netsandbox: environment not found: nobody") {
		t.Fatalf("exec said:\n%s", out)
	}
	var inited []string
	for _, m := range regexp.MustCompile(`(?m)^init (\S+) @`).FindAllStringSubmatch(string(out), -1) {
		inited = append(inited, m[1])
	}
	if len(inited) == 0 {
		t.Fatal("the runtime traced nothing")
	}
	// Small packages of theirs that need nothing may come first; what costs must
	// not.
	late := []string{
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/rs/zerolog", "github.com/vishvananda/netlink",
		"modernc.org/sqlite", "modernc.org/sqlite/lib", "modernc.org/libc", "gvisor.dev/gvisor/pkg/tcpip",
		"gvisor.dev/gvisor/pkg/tcpip/stack", "net", "net/http", "crypto/tls", "text/template",
	}
	for _, p := range inited {
		if slices.Contains(late, p) {
			t.Errorf("%s is initialised before exec runs", p)
		}
	}
}
