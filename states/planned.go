package states

// Planned is an environment whose difference is frozen as a plan with a digest.
const Planned State = "planned"

func planned() []Edge {
	return leavable(Planned,
		recheck(Planned),
		// Planning again freezes again; an unchanged layer gives the same digest.
		Edge{On: Plan, To: Planned, Guards: planning()},
		Edge{On: Authorize, To: Authorized, Guards: []Guard{PlanCurrent, AuthorityHeld}},
	)
}
