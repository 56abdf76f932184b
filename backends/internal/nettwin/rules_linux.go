package nettwin

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// setRules deletes the rules that the host lacks and adds those the twin lacks.
func (r *replica) setRules() error {
	twin, err := observeRules(r.conn)
	if err != nil {
		return err
	}
	wanted := map[string][]byte{}
	for _, m := range r.host.rules {
		wanted[rtnl.RuleText(m)] = m
	}
	for _, m := range twin {
		k := rtnl.RuleText(m)
		if _, ok := wanted[k]; ok {
			delete(wanted, k)
			continue
		}
		if err := r.conn.Do(unix.RTM_DELRULE, 0, rtnl.Rule(m)); err != nil {
			return fmt.Errorf("delete rule %s: %w", k, err)
		}
	}
	for _, m := range r.host.rules { // in the host's order: equal preferences keep theirs
		k := rtnl.RuleText(m)
		if wanted[k] == nil {
			continue
		}
		if err := r.conn.Do(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, rtnl.Rule(m)); err != nil {
			r.notes = append(r.notes, fmt.Sprintf("rule %s is not in the twin: %v", k, err))
		}
	}
	return nil
}

func observeRules(c *rtnl.Conn) ([][]byte, error) {
	var out [][]byte
	for _, af := range []byte{unix.AF_INET, unix.AF_INET6} {
		ms, err := c.Dump(unix.RTM_GETRULE, family(af, rtnl.SizeofRuleHdr))
		if err != nil {
			return nil, fmt.Errorf("list rules of twin: %w", err)
		}
		out = append(out, ms...)
	}
	return out, nil
}
