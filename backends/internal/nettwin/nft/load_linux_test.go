package nft

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// pair is a host and a twin with the same links and no rules.
func pair(t testing.TB) (host, twin *netlab.Node) {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.NFT, nstest.Tool("nft"))
	l := netlab.New()
	t.Cleanup(func() { l.Close() })
	var err error
	if host, err = l.Node("host"); err != nil {
		t.Fatal(err)
	}
	if twin, err = l.Node("twin"); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"eth0", "eth1"} {
		if err := l.Wire(host, link, twin, link); err != nil {
			t.Fatal(err)
		}
	}
	return host, twin
}

// load loads the host's ruleset into the twin and returns the notes.
func load(t testing.TB, host, twin *netlab.Node) []string {
	t.Helper()
	raw, err := Read(int(host.NS().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	notes, err := raw.Load(int(twin.NS().Fd()), nil)
	if err != nil {
		t.Fatal(err)
	}
	return notes
}

// apply gives a node rules in the language of nft(8).
func apply(t testing.TB, n *netlab.Node, rules string) {
	t.Helper()
	file := t.TempDir() + "/rules"
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Run(t.Context(), "nft", "-f", file); err != nil {
		t.Fatal(err)
	}
}

// listed is what nft(8) says of a node, without counters.
func listed(t testing.TB, n *netlab.Node) string {
	t.Helper()
	var out, errs strings.Builder
	cmd := exec.Command("nft", "-s", "-y", "list", "ruleset")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := n.Do(cmd.Run); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return lifetimes.ReplaceAllString(out.String(), "")
}
