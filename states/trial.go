package states

// Trial is an environment whose plan is on the host and will be undone unless
// it is committed. Nothing else can be done with it meanwhile.
const Trial State = "trial"

func trial() []Edge {
	return []Edge{
		{From: Trial, On: Commit, To: Committed, Guards: []Guard{TrialPreserved, LeaseHeld, Confirmed}},
		// An undo that left something behind is not a rollback: the environment
		// stays here, its transaction incomplete, until recover has finished it.
		{From: Trial, On: Rollback, To: RolledBack, Guards: []Guard{UndoVerified}},
		{From: Trial, On: Lapse, To: RolledBack, Guards: []Guard{UndoVerified}},
	}
}
