package way

import (
	"fmt"
	"time"
)

// What a twin may do to the kernel's neighbour tables. There is one for each
// family and all namespaces of a machine, with room for 1024 entries that nobody
// made permanent (gc_thresh3), and an entry that was answered cannot be thrown out
// before it is stale: after 15 to 45 s (base_reachable_time), and 5 s more. So
// MaxNeighbors of them is the most that one twin holds against all others.
const (
	MaxNeighbors = 128 // of each family
	NeighborTime = time.Minute
)

// Crowded is met where something was dropped because its next hop was one too many.
var Crowded = Limit{
	Kind: Load, Subject: "neighbours",
	Reason: fmt.Sprintf("the inside sent to more than %d of a family within %d s, and to others nothing leaves", MaxNeighbors, NeighborTime/time.Second),
}
