package guards

// circuitsFresh wants every required circuit to hold on this very layer, seen
// within the freshness window of this boot.
func circuitsFresh(f Facts) *Refusal { return judgeCircuits(f, true) }
