package linuxns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/initd"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// holds reports whether a finding names the thing and how to remove it.
func holds(found []backends.Finding, kind, what string) bool {
	return slices.ContainsFunc(found, func(f backends.Finding) bool {
		return f.Name == "leftover "+kind && f.Status == "leftover" && f.Fix != "" && strings.Contains(f.Detail, what)
	})
}

func TestLeftoversOfTheNetwork(t *testing.T) {
	nstest.New(t, nstest.NFT, nstest.Tool("ip"), nstest.Tool("nft"))
	if found := append(strayRules(""), strayTables("")...); len(found) != 0 {
		t.Errorf("a fresh namespace has leftovers: %+v", found)
	}
	// As a lane leaves them whose owner was killed, in its first block of numbers.
	const table = "1526726656" // 0x5b000000
	run(t, "ip", "rule", "add", "pref", "5100", "fwmark", "0x5b000000/0xff003fff", "table", table, "protocol", "91")
	run(t, "ip", "-6", "rule", "add", "pref", "5100", "fwmark", "0x5b000001/0xff003fff", "table", "1526726657", "protocol", "91")
	run(t, "ip", "route", "add", "unreachable", "default", "metric", "4294967295", "table", table, "proto", "91")
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "route", "add", "default", "dev", "lo", "table", table, "proto", "91")
	run(t, "nft", "add", "table", "inet", "netsandbox")
	// Others' things, some of them with our protocol number.
	run(t, "ip", "route", "add", "198.51.100.0/24", "dev", "lo", "proto", "static")
	run(t, "ip", "rule", "add", "pref", "5200", "fwmark", "7", "table", "77", "protocol", "91")
	run(t, "ip", "route", "add", "192.0.2.0/24", "dev", "lo", "table", "77", "proto", "91")
	run(t, "nft", "add", "table", "ip", "other")
	rules, tables := strayRules(""), strayTables("")
	for _, want := range []struct{ kind, what string }{
		{"rule", "IPv4, pref 5100"},
		{"rule", "IPv6, pref 5100"},
		{"route", "IPv4, default dev lo table " + table},
		{"route", "IPv4, unreachable default table " + table},
		{"nft table", "inet netsandbox"},
	} {
		if !holds(append(rules, tables...), want.kind, want.what) {
			t.Errorf("no leftover %s %q in %+v %+v", want.kind, want.what, rules, tables)
		}
	}
	if len(rules) != 4 || len(tables) != 1 {
		t.Errorf("others' things are called leftovers: %+v %+v", rules, tables)
	}
	for _, f := range tables {
		if out, err := exec.Command("sh", "-c", f.Fix).CombinedOutput(); err != nil {
			t.Errorf("fix %q: %v\n%s", f.Fix, err, out)
		}
	}
	for _, f := range rules {
		if f.Fix != "netsandbox recover" {
			t.Errorf("fix %q", f.Fix)
		}
	}
	if _, err := New().Tidy(t.Context(), nil); err != nil { // as recover does
		t.Error(err)
	}
	if found := append(strayRules(""), strayTables("")...); len(found) != 0 {
		t.Errorf("left after the fixes: %+v", found)
	}
	run(t, "ip", "rule", "del", "pref", "5200", "fwmark", "7", "table", "77", "protocol", "91") // others' are still there
	run(t, "ip", "route", "del", "192.0.2.0/24", "table", "77", "proto", "91")
}

func TestLeftoverMounts(t *testing.T) {
	nstest.NewMount(t)
	root := t.TempDir()
	below := filepath.Join(root, "environments")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", below, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	if found := strayMounts(root); !holds(found, "mount", below) {
		t.Errorf("no leftover mount on %s in %+v", below, found)
	}
}

func TestLeftoverProcesses(t *testing.T) {
	nstest.Require(t, nstest.Root)
	c := exec.Command("sleep", "600")
	c.Args[0] = initd.Argv0
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	what := fmt.Sprintf("process %d (%s)", c.Process.Pid, initd.Argv0)
	until(t, "the stray is found", func() bool { return holds(strayProcesses(""), "process", what) })

	e := newEnv(t)
	s, err := e.view().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strayProcesses("") {
		if strings.Contains(f.Detail, fmt.Sprintf("process %d ", s.Holder)) || strings.Contains(f.Detail, fmt.Sprintf("process %d ", s.Init)) {
			t.Errorf("a live environment is called a leftover: %+v", f)
		}
	}
}

func TestLeftoverGroups(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Cgroup2)
	root, err := cgroup2Mount()
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t) // also keeps our top group from going away with another test
	group := filepath.Join(root, cgroup.Tag, newID())
	if err := os.MkdirAll(filepath.Join(group, "view"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Rmdir(filepath.Join(group, "view")); unix.Rmdir(group) })
	found := emptyGroups("")
	if !holds(found, "cgroup", group) {
		t.Errorf("no leftover %s in %+v", group, found)
	}
	if holds(found, "cgroup", e.spec.ID) {
		t.Errorf("a live environment is called a leftover: %+v", found)
	}
	for _, f := range found {
		if strings.Contains(f.Detail, group) {
			run(t, "sh", "-c", f.Fix)
		}
	}
	if holds(emptyGroups(""), "cgroup", group) {
		t.Error("the fix does not fix")
	}
}
