package states

// Created is a new environment: a view exists and nothing in it differs.
const Created State = "created"

func created() []Edge {
	return leavable(Created,
		// Circuits may be tried before there is a change; the observations are kept.
		Edge{On: Check, To: Created},
	)
}
