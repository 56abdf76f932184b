package nft

import (
	"slices"
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
