package lanes

const childStep = "LANES_CHILD_STEP"

func child() int { return 0 }
