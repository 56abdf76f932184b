package workflow

// The events, as they stand in the journal and in the log. The name is
// noun.past-participle and is the message; docs/events.md has an example of
// each, and a test fails on one that is missing there.
const (
	EventEnvCreated      = "env.created"
	EventEnvDiscarded    = "env.discarded"
	EventExecStarted     = "exec.started"
	EventExecExited      = "exec.exited"
	EventChangeStaged    = "change.staged"
	EventLayerReset      = "layer.reset"
	EventCircuitAdded    = "circuit.added"
	EventCircuitChanged  = "circuit.changed"
	EventCircuitRemoved  = "circuit.removed"
	EventCircuitChecked  = "circuit.checked"
	EventGuardRefused    = "guard.refused"
	EventPlanMade        = "plan.made"
	EventGrantRecorded   = "grant.recorded"
	EventGrantRevoked    = "grant.revoked"
	EventLeaseArmed      = "lease.armed"
	EventChangeIntended  = "change.intended"
	EventChangeApplied   = "change.applied"
	EventChangeReverted  = "change.reverted"
	EventTrialConfirmed  = "trial.confirmed"
	EventTrialDecided    = "trial.decided"
	EventStateMoved      = "state.moved"
	EventBackupPruned    = "backup.pruned"
	EventTwinLost        = "twin.lost"
	EventRecoverStarted  = "recover.started"
	EventRecoverFinished = "recover.finished"
)

// Events lists every event, for the test over docs/events.md.
func Events() []string {
	return []string{
		EventEnvCreated, EventEnvDiscarded, EventExecStarted, EventExecExited, EventChangeStaged, EventLayerReset,
		EventCircuitAdded, EventCircuitChanged, EventCircuitRemoved, EventCircuitChecked, EventGuardRefused,
		EventPlanMade, EventGrantRecorded, EventGrantRevoked, EventLeaseArmed, EventChangeIntended, EventChangeApplied,
		EventChangeReverted, EventTrialConfirmed, EventTrialDecided, EventStateMoved, EventTwinLost, EventRecoverStarted,
		EventRecoverFinished, EventBackupPruned,
	}
}
