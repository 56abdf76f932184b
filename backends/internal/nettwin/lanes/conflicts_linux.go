package lanes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// Conflicts says what of the host takes the numbers that lanes would have first,
// and which of its interfaces filter reverse paths strictly. Nothing of it is
// wrong: lanes evade the first, and let answers in flow by flow for the second.
func Conflicts(host int) ([]Conflict, error) {
	k, err := dial(host)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	var out []Conflict
	for _, six := range []bool{false, true} {
		for _, f := range []func(bool) ([]Conflict, error){k.ruleConflicts, k.routeConflicts} {
			cs, err := f(six)
			if err != nil {
				return nil, err
			}
			out = append(out, cs...)
		}
	}
	filters, err := reversePaths(host)
	return append(out, filters...), err
}

func (k *kernel) ruleConflicts(six bool) ([]Conflict, error) {
	ms, err := k.dumpRules(six)
	if err != nil {
		return nil, err
	}
	var out []Conflict
	for _, m := range ms {
		r := parseRule(m)
		if _, ok := r.ours(); ok {
			continue
		}
		out = append(out, ruleConflict(r, "rule "+rtnl.RuleText(m))...)
	}
	return out, nil
}

// ruleConflict says what a rule of the host has that ours would have.
func ruleConflict(r rule, text string) (out []Conflict) {
	say := func(kind, reason string) { out = append(out, Conflict{Kind: kind, Subject: text, Reason: reason}) }
	if r.pref <= firstPref && !r.local() && r.takes(block(0).number(0)) {
		if r.pref == 0 {
			out = append(out, Conflict{ConflictPref, text, "nothing can come before it: no lane can be made", true})
		} else {
			say(ConflictPref, fmt.Sprintf("it comes before %d; rules of lanes go before it", firstPref))
		}
	}
	if n, ok := r.mark.inRange(); ok {
		say(ConflictMark, fmt.Sprintf("its mark is in the range of lanes (%#x); they take others", n))
	}
	if _, ok := blockOf(r.table); ok {
		say(ConflictTable, "its table is in the range of lanes; they take others")
	}
	if r.protocol == protocol {
		say(ConflictProtocol, fmt.Sprintf("somebody else tags rules with protocol %d; it is left alone", protocol))
	}
	return out
}

func (k *kernel) routeConflicts(six bool) ([]Conflict, error) {
	ms, err := k.dumpRoutes(six, 0)
	if err != nil {
		return nil, err
	}
	var out []Conflict
	for _, m := range ms {
		r := parseRoute(m)
		if _, ok := r.ours(); ok || r.protocol != protocol {
			continue
		}
		out = append(out, Conflict{
			Kind: ConflictProtocol, Subject: "route " + rtnl.RouteText(m, k.linkName),
			Reason: fmt.Sprintf("somebody else tags routes with protocol %d; it is left alone", protocol),
		})
	}
	return out, nil
}

// reversePaths lists the interfaces whose reverse path filter is strict: the
// larger value of the interface and of "all" counts.
func reversePaths(host int) (out []Conflict, err error) {
	err = netns.Do(host, func() error {
		const dir = "/proc/sys/net/ipv4/conf"
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("list interfaces: %w", err)
		}
		value := func(link, name string) string {
			b, err := os.ReadFile(filepath.Join(dir, link, name))
			if err != nil {
				return "" // the interface went meanwhile
			}
			return strings.TrimSpace(string(b))
		}
		for _, e := range entries {
			link := e.Name()
			if link == "all" || link == "default" || link == "lo" {
				continue
			}
			all, own := value("all", "rp_filter"), value(link, "rp_filter")
			if own == "" || max(all, own) != "1" { // one digit each
				continue
			}
			reason := fmt.Sprintf("reverse path filtering is strict (rp_filter: all %s, %s %s)", all, link, own)
			if max(value("all", "src_valid_mark"), value(link, "src_valid_mark")) == "1" {
				reason += ", with marks (src_valid_mark)"
			}
			out = append(out, Conflict{Kind: ConflictReversePath, Subject: link, Reason: reason})
		}
		return nil
	})
	return out, err
}
