package states

// Staged is an environment whose layer holds candidates that nothing has run
// against yet.
const Staged State = "staged"

func staged() []Edge {
	return leavable(Staged,
		Edge{On: Check, To: Checked, Guards: []Guard{ChangesPresent, CircuitsPreserved}, Else: Staged},
	)
}
