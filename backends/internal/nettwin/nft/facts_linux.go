package nft

import (
	"cmp"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Seen is what of a host's packet filter decides how a twin must behave, or what
// it cannot do. It knows the expressions that such rules are made of; a rule made
// of others has no part in it.
type Seen struct {
	// OutputNAT says that something translates what the host itself sends.
	OutputNAT bool
	// SourceNAT says that something gives another source to what is sent.
	SourceNAT bool
	// Redirects lists where the host itself, or one of its proxies, is given what
	// its own processes send elsewhere.
	Redirects []Redirect
	// Marks lists the marks that rules set or compare.
	Marks []Mark
	// RPFilter names the chains that drop what comes in elsewhere than the answer
	// would go out: "ip raw chain PREROUTING", and of a chain for both families
	// that drops one, "ip6 packets in inet firewalld chain filter_PREROUTING".
	RPFilter []string
	// Owners names the chains that ask which user, group or cgroup sends. What a
	// relay sends for a process is not sent by that process.
	Owners []string
	// Queues names the chains that hand packets to a program and drop them when
	// there is none: no twin has the program.
	Queues []string
}

// Redirect is one destination of nat in the output hook.
type Redirect struct {
	Proto uint8 // 0: the rule does not say
	// Addr is the new destination; not valid for the host's own (redirect).
	Addr      netip.Addr
	Port      uint16 // 0: unchanged
	Four, Six bool
}

// Mark is a set of marks: those of which the bits in Mask are as in Value.
type Mark struct{ Value, Mask uint32 }

// Facts reads the ruleset of the namespace ns.
func Facts(ns int) (*Seen, error) {
	r, err := Read(ns)
	if err != nil {
		return nil, err
	}
	return r.Facts(), nil
}

// Facts says what a ruleset tells.
func (r *Raw) Facts() *Seen {
	s := &Seen{}
	for _, t := range r.tables {
		hooks := t.hooks()
		for _, c := range t.chains {
			name := c.str(unix.NFTA_CHAIN_NAME)
			at := place{chain: t.String() + " chain " + name, family: t.family}
			for _, h := range hooks[name] {
				at.source = at.source || h.nat && h.num == unix.NF_INET_POST_ROUTING
				at.output = at.output || h.nat && h.num == unix.NF_INET_LOCAL_OUT && t.family != unix.NFPROTO_NETDEV
				at.inbound = at.inbound || h.num == unix.NF_INET_PRE_ROUTING || h.num == inetIngress
			}
			for _, rule := range t.rules[name] {
				s.OutputNAT = s.OutputNAT || at.output
				s.SourceNAT = s.SourceNAT || at.source
				s.rule(t, at, rule)
			}
		}
	}
	s.Tidy()
	return s
}

// inetIngress is NF_INET_INGRESS.
const inetIngress = 5

// place is where a rule stands.
type place struct {
	chain                   string
	family                  byte
	output, source, inbound bool
}

// hook is one of the ways into a chain.
type hook struct {
	num uint32
	nat bool
}

// hooks says for each chain from which hooks packets come into it: its own, and
// those of the chains that lead there. A dormant table has none.
func (t *rawTable) hooks() map[string][]hook {
	out := map[string][]hook{}
	if t.num(unix.NFTA_TABLE_FLAGS)&tableDormant != 0 {
		return out
	}
	next := map[string][]string{}
	for chain, rules := range t.rules {
		next[chain] = t.leads(rules)
	}
	for _, c := range t.chains {
		h := c.nest(unix.NFTA_CHAIN_HOOK)
		if h.attrs == nil {
			continue
		}
		from := hook{h.num(unix.NFTA_HOOK_HOOKNUM), c.str(unix.NFTA_CHAIN_TYPE) == "nat"}
		for queue := []string{c.str(unix.NFTA_CHAIN_NAME)}; len(queue) > 0; queue = queue[1:] {
			if !slices.Contains(out[queue[0]], from) {
				out[queue[0]] = append(out[queue[0]], from)
				queue = append(queue, next[queue[0]]...)
			}
		}
	}
	return out
}

// leads lists the chains that rules jump to, by themselves or by a verdict map.
func (t *rawTable) leads(rules []object) []string {
	var out []string
	add := func(chain string) {
		if chain != "" && !slices.Contains(out, chain) {
			out = append(out, chain)
		}
	}
	sets := map[string]bool{}
	for _, r := range rules {
		for name, e := range expressions(r.nest(unix.NFTA_RULE_EXPRESSIONS).attrs) {
			switch name {
			case "immediate":
				chain, _ := e.verdict(unix.NFTA_IMMEDIATE_DATA)
				add(chain)
			case "lookup":
				sets[e.str(unix.NFTA_LOOKUP_SET)] = true
			}
		}
	}
	for _, s := range t.sets {
		if sets[s.name] && s.num(unix.NFTA_SET_FLAGS)&unix.NFT_SET_MAP != 0 {
			for _, e := range s.elements {
				chain, _ := object{attrs: e}.verdict(unix.NFTA_SET_ELEM_DATA)
				add(chain)
			}
		}
	}
	return out
}

// Tidy sorts what was seen and keeps each thing once.
func (s *Seen) Tidy() {
	for _, l := range []*[]string{&s.RPFilter, &s.Owners, &s.Queues} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	slices.SortFunc(s.Marks, func(a, b Mark) int { return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Mask, b.Mask)) })
	s.Marks = slices.Compact(s.Marks)
	slices.SortFunc(s.Redirects, func(a, b Redirect) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(side(a), side(b)))
	})
	s.Redirects = slices.Compact(s.Redirects)
}

func side(r Redirect) int {
	n := 0
	if r.Four {
		n++
	}
	if r.Six {
		n += 2
	}
	return n
}
