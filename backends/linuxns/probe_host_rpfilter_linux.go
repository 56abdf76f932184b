package linuxns

import (
	"strconv"

	"github.com/netsandbox/netsandbox/backends"
)

// strict is the value of rp_filter at which the kernel drops what comes in by
// another interface than the answer would leave by.
const strict = 1

// reversePathFilter names the interfaces with a strict one. It is no limit: the
// answers to a flow that a twin sends by another interface than the host would
// are let in by a rule of that flow's own, and nothing else is.
func reversePathFilter(h *hostNet) (backends.Finding, error) {
	value := func(link string) (int, error) {
		s, err := sysctl("ipv4/conf/" + link + "/rp_filter")
		if err != nil || s == "" {
			return 0, err
		}
		return strconv.Atoi(s)
	}
	all, err := value("all")
	if err != nil {
		return backends.Finding{}, err
	}
	var on []string
	for _, l := range h.links {
		n, err := value(l.Name)
		if err != nil {
			return backends.Finding{}, err
		}
		if !l.Loopback() && max(n, all) == strict { // the greater of the two counts
			on = append(on, l.Name)
		}
	}
	if on == nil {
		return fine("not strict on any interface")
	}
	return fine("strict on %s: answers by another interface are let in flow by flow", listed(on))
}
