package backends

import "context"

// Tidier is a [Backend] that finds by itself what processes of its environments
// left on the host when they were killed.
type Tidier interface {
	// Tidy removes it and returns what that was. Objects of the network are those
	// of any environment on this machine whose holder is dead, each of which nobody
	// else's packet can meet; processes and their groups are those of the given
	// environments only. What belongs to a living holder is not touched.
	Tidy(ctx context.Context, specs []Spec) ([]Resource, error)
}
