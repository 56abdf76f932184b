package states

// Committed is an environment whose plan the host kept.
const Committed State = "committed"

func committed() []Edge {
	return leavable(Committed,
		Edge{On: Rollback, To: RolledBack, Guards: []Guard{Reversible, UndoVerified}},
	)
}
