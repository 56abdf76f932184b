package workflow

import (
	"encoding/json"
	"fmt"

	"github.com/netsandbox/netsandbox/workflow/journal"
)

// noteTwin records, once, that the twin of an environment was lost: whoever
// supervises it wants to know when that was first seen. A twin that is there
// again ends it.
func (w *Workflow) noteTwin(tx *journal.Tx, env *journal.Env, lost bool) error {
	var f envFacts
	if err := json.Unmarshal(env.Facts, &f); err != nil {
		return fmt.Errorf("environment %s: %w: facts: %w", env.Name, journal.ErrCorrupt, err)
	}
	if f.TwinLost == lost {
		return nil
	}
	f.TwinLost = lost
	js, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("record environment: %w", err)
	}
	env.Facts = js
	if !lost {
		return nil
	}
	return w.event(tx, env.ID, "", EventTwinLost, map[string]any{"name": env.Name})
}
