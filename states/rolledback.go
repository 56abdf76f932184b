package states

// RolledBack is an environment whose plan was on the host and is not any more.
// Its layer is as it was, so it can be repaired and tried again.
const RolledBack State = "rolledback"

func rolledback() []Edge {
	return leavable(RolledBack,
		Edge{On: Check, To: Checked, Guards: []Guard{ChangesPresent, CircuitsPreserved}, Else: RolledBack},
	)
}
