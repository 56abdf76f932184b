package states

// Checked is an environment whose required circuits all held on this very layer.
const Checked State = "checked"

func checked() []Edge {
	return leavable(Checked,
		recheck(Checked),
		Edge{On: Plan, To: Planned, Guards: planning()},
	)
}

// planning is what must hold before a difference becomes a plan.
func planning() []Guard {
	return []Guard{ChangesPresent, CircuitsFresh, CanaryPresent, ChangesRepresentable, OriginsUnchanged, TwinPresent}
}

// recheck keeps a state as long as the evidence still carries it.
func recheck(s State) Edge {
	return Edge{On: Check, To: s, Guards: []Guard{LayerUnchanged, CircuitsPreserved}, Else: Exercised}
}
