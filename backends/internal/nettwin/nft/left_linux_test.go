package nft

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// TestGlobalTargetsStayOut: a rule whose target acts on the machine is named and
// not made. The table is no kernel's, so that no timer of this machine is made.
func TestGlobalTargetsStayOut(t *testing.T) {
	rule := func(target string) object {
		e := rtnl.AppendString(nil, unix.NFTA_EXPR_NAME, "target")
		e = rtnl.Append(e, unix.NFTA_EXPR_DATA, rtnl.AppendString(nil, unix.NFTA_TARGET_NAME, target))
		a := rtnl.AppendString(nil, unix.NFTA_RULE_CHAIN, "c")
		return object{unix.NFPROTO_IPV4, rtnl.Append(a, unix.NFTA_RULE_EXPRESSIONS, rtnl.Append(nil, unix.NFTA_LIST_ELEM, e))}
	}
	tab := &rawTable{
		object: object{family: unix.NFPROTO_IPV4}, name: "t",
		chains: []object{{unix.NFPROTO_IPV4, rtnl.AppendString(nil, unix.NFTA_CHAIN_NAME, "c")}},
		rules:  map[string][]object{"c": {rule("LED"), rule("LOG"), rule("IDLETIMER")}},
	}
	steps, left := tab.steps(nil)
	var made []string
	for _, s := range steps {
		if s.typ == unix.NFT_MSG_NEWRULE {
			made = append(made, extensions(s))
		}
	}
	if !slices.Equal(made, []string{"iptables target LOG"}) {
		t.Errorf("rules made with %q, want that with LOG alone", made)
	}
	want := []string{
		"nftables rule in chain ip t c is not in the twin: it acts on the whole machine (iptables target LED)",
		"nftables rule in chain ip t c is not in the twin: it acts on the whole machine (iptables target IDLETIMER)",
	}
	if got := describe(left); !slices.Equal(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
}

// TestWhatIsUsedByNothingStaysOut takes rules out of a batch as when the kernel
// has refused them: their sets and chains have to go with them.
func TestWhatIsUsedByNothingStaysOut(t *testing.T) {
	host, twin := pair(t)
	apply(t, host, readable(`
table inet j {
	chain in {
		type filter hook input priority 0;
		tcp dport 22 jump {
			ip saddr { 10.0.0.1, 10.0.0.2 } accept
			drop
		}
		udp dport { 53, 54 } accept
		udp dport { 55, 56 } drop
	}
}`))
	raw, err := Read(int(host.NS().Fd()))
	must(t, err)
	s, err := open(int(twin.NS().Fd()))
	must(t, err)
	defer s.Close()
	steps, _ := raw.tables[0].steps(nil)
	rules := 0
	rest := slices.DeleteFunc(steps, func(s step) bool {
		if s.typ != unix.NFT_MSG_NEWRULE || s.anonymous != "" {
			return false
		}
		rules++
		return rules < 3
	})
	l := loader{s: s}
	if errs := l.commit(slices.Clone(rest)); len(errs) == 0 {
		t.Error("the kernel takes sets and chains that nothing uses: bound is for nothing")
	}
	if errs := l.commit(bound(rest)); len(errs) != 0 {
		t.Errorf("refused: %v", errs)
	}
	if out := listed(t, twin); !strings.Contains(out, "udp dport { 55, 56 } drop") || strings.Contains(out, "53") || strings.Contains(out, "10.0.0.1") {
		t.Errorf("the twin has\n%s", out)
	}
}
