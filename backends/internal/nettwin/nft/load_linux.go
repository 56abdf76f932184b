package nft

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// commitError is the place, among the answers to a batch, of the kernel's refusal
// to commit what it took piece by piece.
const commitError = -1

// Load makes the ruleset in the namespace ns, which has none of its tables.
// links says which interface of ns, by number, stands for one of the namespace
// that was read, where the two differ. Whatever the kernel does not take is
// named in the notes, and the rest stands.
func (r *Raw) Load(ns int, links map[int]int) (notes []string, err error) {
	if len(r.tables) == 0 {
		return nil, nil
	}
	s, err := open(ns)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	owner, err := userns.Foreign(ns)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		defer owner.Close()
	}
	l := loader{s, owner}
	parts := make([][]step, len(r.tables))
	var left []refusal
	for i, t := range r.tables {
		var l []refusal
		parts[i], l = t.steps(links)
		left = append(left, l...)
	}
	defer func() { notes = append(notes, describe(left)...) }()
	// Each commit waits until no processor is in the old ruleset, so all tables go
	// at once; one that is refused would take the others along.
	if len(l.commit(slices.Concat(parts...))) == 0 {
		return nil, nil
	}
	for i, part := range parts {
		notes = append(notes, l.table(r.tables[i], part)...)
	}
	return notes, nil
}

// loader sends batches into one namespace.
type loader struct {
	s     *socket
	owner *os.File // nil when it is the caller
}

// table makes one table without what the kernel refuses of it.
func (l *loader) table(t *rawTable, steps []step) []string {
	var refused []refusal
	for range 8 { // what depends on a refused step is refused with it, so two do
		errs := l.commit(steps)
		if len(errs) == 0 {
			return describe(refused)
		}
		if err := errors.Join(errs[commitError], errs[0]); err != nil {
			return []string{fmt.Sprintf("nftables table %s is not in the twin: %v", t, err)}
		}
		if first := cascade(errs, len(steps)); first > 0 {
			errs = map[int]error{first: errs[first]}
		}
		var rest []step
		for i, s := range steps {
			if errs[i] == nil {
				rest = append(rest, s)
			} else {
				refused = append(refused, refusal{s, errs[i]})
			}
		}
		steps = bound(rest)
	}
	return []string{fmt.Sprintf("nftables table %s is not in the twin: %v", t, refused[len(refused)-1].err)}
}

// cascade finds the step from which on everything is refused. With each rule the
// kernel may look at the whole table again, so all the others may be innocent.
func cascade(errs map[int]error, n int) int {
	first := n - len(errs)
	for i := first; i < n; i++ {
		if errs[i] == nil {
			return 0
		}
	}
	return first
}

// bound leaves out sets and chains without a name that no rule is left to use:
// the kernel commits none.
func bound(steps []step) []step {
	for {
		used := map[string]bool{}
		for _, s := range steps {
			for _, name := range uses(s) {
				used[name] = true
			}
		}
		n := len(steps)
		steps = slices.DeleteFunc(steps, func(s step) bool { return s.anonymous != "" && !used[s.anonymous] })
		if len(steps) == n {
			return steps
		}
	}
}

// refusal is a step that the kernel did not take.
type refusal struct {
	step
	err error
}

// describe puts refusals into words, those of one place with one reason together.
func describe(rs []refusal) []string {
	type group struct{ what, reason string }
	count := map[group]int{}
	var order []group
	for _, r := range rs {
		g := group{r.what, r.reason()}
		if count[g]++; count[g] == 1 {
			order = append(order, g)
		}
	}
	var out []string
	for _, g := range order {
		if n := count[g]; n > 1 {
			out = append(out, fmt.Sprintf("%s is not in the twin, %d times: %s", g.what, n, g.reason))
		} else {
			out = append(out, fmt.Sprintf("%s is not in the twin: %s", g.what, g.reason))
		}
	}
	return out
}

// reason is the kernel's, and what of iptables the rule is made of: the kernel
// says "no such file" of an ipset.
func (r refusal) reason() string {
	if of := extensions(r.step); of != "" {
		return fmt.Sprintf("%v (%s)", r.err, of)
	}
	return r.err.Error()
}

// commit sends steps as one transaction, all of them or none, and returns the
// errors by the place of the step.
func (l *loader) commit(steps []step) map[int]error {
	size := 0
	for _, st := range steps {
		size += len(st.attrs) + unix.NLMSG_HDRLEN + headerSize + 4
	}
	base := l.s.seq
	b := appendEdge(make([]byte, 0, size+64), unix.NFNL_MSG_BATCH_BEGIN, base)
	owner := false
	for i, st := range steps {
		b = appendMessage(b, st.typ, st.flags, base+1+uint32(i), st.family, st.attrs)
		owner = owner || st.owner
	}
	l.s.seq += uint32(len(steps)) + 2
	b = appendEdge(b, unix.NFNL_MSG_BATCH_END, l.s.seq-1)
	// Only where it must: a child costs more than a system call. When there can be
	// none, the kernel says which rules it does not take from us.
	if !owner || l.owner == nil || l.s.send(l.owner, b) != nil {
		if err := l.s.send(nil, b); err != nil {
			return map[int]error{commitError: err}
		}
	}
	return l.answers(base, len(steps))
}

// answers collects what the kernel said. It worked while we sent, so everything
// is there; a message that it took is not answered.
func (l *loader) answers(base uint32, n int) map[int]error {
	errs := map[int]error{}
	for {
		ms, err := l.s.receive(unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			return errs
		}
		if err != nil { // ENOBUFS: more answers than room for them
			errs[commitError] = err
			if !errors.Is(err, unix.ENOBUFS) {
				return errs
			}
			continue
		}
		for _, m := range ms {
			if m.Header.Type != unix.NLMSG_ERROR {
				continue
			}
			i := int(int32(m.Header.Seq-base)) - 1
			if err := outcome(m.Data); err != nil && i >= commitError && i < n {
				errs[i] = err
			}
		}
	}
}
