package states

// Table returns every permitted move, in the order of [All].
func Table() []Edge {
	var t []Edge
	for _, edges := range [][]Edge{
		created(), staged(), exercised(), checked(), planned(), authorized(), trial(), committed(), rolledback(),
	} {
		t = append(t, edges...)
	}
	return t
}

// leavable adds what is permitted from every state but Trial: the layer may be
// changed or dropped, and evidence about the old layer stops counting.
func leavable(from State, own ...Edge) []Edge {
	edges := []Edge{
		{On: Stage, To: Staged},
		{On: Exec, To: Exercised},
		{On: Reset, To: Created, Guards: []Guard{ViewIdle}},
		{On: ResetPartly, To: Staged, Guards: []Guard{ViewIdle}},
	}
	edges = append(edges, own...)
	for i := range edges {
		edges[i].From = from
	}
	return edges
}

// Find returns the edge that answers a trigger in a state.
func Find(from State, on Trigger) (Edge, bool) {
	for _, e := range Table() {
		if e.From == from && e.On == on {
			return e, true
		}
	}
	return Edge{}, false
}

// Triggers returns what a state answers to, in the order of the table.
func Triggers(from State) []Trigger {
	var ts []Trigger
	for _, e := range Table() {
		if e.From == from {
			ts = append(ts, e.On)
		}
	}
	return ts
}

// Next returns the trigger that leads an environment one step towards being
// committed, and whether there is one.
func Next(from State) (Trigger, bool) {
	//exhaustive:enforce
	switch from {
	case Created:
		return "", false // only the user knows the change
	case Staged, Exercised, RolledBack:
		return Check, true
	case Checked:
		return Plan, true
	case Planned:
		return Authorize, true
	case Authorized:
		return Try, true
	case Trial:
		return Commit, true
	case Committed:
		return "", false
	}
	return "", false
}
