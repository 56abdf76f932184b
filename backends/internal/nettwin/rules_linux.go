package nettwin

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// setRules deletes the rules that the host lacks and adds those the twin lacks.
// The kernel takes a rule twice, so they are counted.
func (r *replica) setRules() error {
	twin, err := dumpRules(r.conn)
	if err != nil {
		return err
	}
	wanted, kept := map[string]int{}, map[string]int{}
	for _, m := range r.host.rules {
		wanted[rtnl.RuleText(m)]++
	}
	for _, m := range twin {
		k := rtnl.RuleText(r.shift.Out(m))
		if kept[k] < wanted[k] {
			kept[k]++
			continue
		}
		if err := r.conn.Do(unix.RTM_DELRULE, 0, rtnl.RuleDeletion(m)); err != nil {
			return fmt.Errorf("delete rule %s: %w", k, err)
		}
	}
	var owner *os.File // of the twin, as far as a rule needs one
	if slices.ContainsFunc(r.host.rules, rtnl.ForUsers) {
		if owner, err = userns.Foreign(r.ns); err != nil {
			return err
		}
		defer owner.Close() // of nil is an error that says nothing
	}
	for _, m := range r.host.rules { // in the host's order: equal preferences keep theirs
		k := rtnl.RuleText(m)
		if kept[k] > 0 {
			kept[k]--
			continue
		}
		r.addRule(k, m, owner)
	}
	return nil
}

// addRule adds one rule. Ids of users are the owner's to name.
func (r *replica) addRule(text string, m []byte, owner *os.File) {
	in, ok := r.shift.In(m)
	if !ok {
		r.note("rule %s is not in the twin: it has no such users", text)
		return
	}
	if !rtnl.ForUsers(in) {
		owner = nil
	}
	if err := r.conn.DoAs(owner, unix.RTM_NEWRULE, unix.NLM_F_CREATE, rtnl.Rule(in)); err != nil {
		r.note("rule %s is not in the twin: %v", text, err)
	}
}
