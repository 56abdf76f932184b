package lease

import (
	"fmt"
	"os"
)

// protect keeps the out-of-memory killer away: a trial that eats the memory is
// one to undo.
func protect() (notes []string) {
	// Lowering it needs CAP_SYS_RESOURCE, which root in a container may lack.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		notes = append(notes, fmt.Sprintf("keeper is not protected from the out-of-memory killer: %v", err))
	}
	return notes
}
