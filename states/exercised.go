package states

// Exercised is an environment in which a command ran after the last evidence.
const Exercised State = "exercised"

func exercised() []Edge {
	return leavable(Exercised,
		Edge{On: Check, To: Checked, Guards: []Guard{ChangesPresent, CircuitsPreserved}, Else: Exercised},
	)
}
