package states

// Authorized is an environment for whose plan somebody gave authority.
const Authorized State = "authorized"

func authorized() []Edge {
	return leavable(Authorized,
		recheck(Authorized),
		Edge{On: Revoke, To: Planned},
		Edge{On: Expire, To: Planned},
		Edge{On: Try, To: Trial, Guards: []Guard{PlanCurrent, AuthorityHeld, CircuitsFresh, OriginsUnchanged, HostLock, LeaseArmed}},
	)
}
