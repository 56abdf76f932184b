package txn

import "github.com/netsandbox/netsandbox/backends"

// Status is the state of a transaction's own machine, derived from its records.
type Status string

// The states of a transaction.
const (
	Prepared   Status = "prepared"   // recorded; the host is untouched
	Armed      Status = "armed"      // and a keeper watches
	Applying   Status = "applying"   // the host is being changed
	Trial      Status = "trial"      // all of it is in place, undecided
	Committed  Status = "committed"  // it stays
	Undone     Status = "undone"     // the host is as before
	Incomplete Status = "incomplete" // an undo has begun and is not, or could not be, finished
)

// state is what the records add up to.
type state struct {
	header    Header
	steps     []backends.Step
	keeper    *Keeper
	verdict   *Verdict
	revert    *Verdict // a rollback after the commit
	seen      map[kind]bool
	leftovers []backends.Leftover
	unlisted  int
}

// fold adds one record.
func (s *state) fold(r record) error {
	if s.seen == nil {
		s.seen = map[kind]bool{}
	}
	switch r.Kind {
	case recHeader:
		if r.Header == nil {
			return ErrCorrupt
		}
		if r.Header.Format > format {
			return ErrNewer
		}
		s.header = *r.Header
	case recPrepare:
		s.steps = r.Steps
	case recStaged, recRestored:
		if len(r.Places) != len(s.steps) {
			return ErrCorrupt
		}
		for i := range s.steps {
			s.steps[i].Place = r.Places[i]
		}
	case recArmed:
		s.keeper = r.Keeper
	case recVerdict:
		if s.verdict == nil { // the first stands
			s.verdict = r.Verdict
		}
	case recRevert:
		s.revert = r.Verdict
		delete(s.seen, recClean)
	case recPruned:
		delete(s.seen, recClean)
	case recUndone, recAccepted:
		s.leftovers, s.unlisted = r.Leftovers, r.Unlisted
	case recSwap, recSwapped, recClean, recForgotten:
	default:
		return ErrNewer // a kind that only a later version writes
	}
	s.seen[r.Kind] = true
	return nil
}

// undoing reports that the transaction is being, or was, taken back.
func (s *state) undoing() bool {
	return s.revert != nil || s.verdict != nil && s.verdict.Decision == Undo
}

func (s *state) status() Status {
	switch {
	case s.undoing() && s.finished():
		return Undone
	case s.undoing():
		return Incomplete
	case s.verdict != nil:
		return Committed
	case s.seen[recSwapped]:
		return Trial
	case s.seen[recStaged] || s.seen[recSwap]:
		return Applying
	case s.seen[recArmed]:
		return Armed
	}
	return Prepared
}

// finished reports that recover has nothing to do.
func (s *state) finished() bool { return s.verdict != nil && s.seen[recClean] }
