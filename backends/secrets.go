package backends

import "context"

// Secrets says that a view hides the secrets of others from what runs in it:
// password hashes, host keys, and the credentials of users who are not its own.
// Which paths those are is the backend's policy, looked up each time a view is
// built, so that what appears later is hidden in the next one.
type Secrets struct {
	// Owners are the users whose own secrets stay: what runs in the view runs for
	// them, and works with their keys.
	Owners []uint32 `json:"owners"`
	// Show lists paths that stay visible all the same, each with all that is below
	// it.
	Show []string `json:"show,omitempty"`
}

// Cover is one path of the host that a view hides.
type Cover struct {
	Path string `json:"path"`
	// How is "hidden", behind something that cannot be read, or "redacted": a copy
	// without what is secret in it, which cannot be written.
	How string `json:"how"`
	Why string `json:"why"`
}

// The ways to cover.
const (
	Hidden   = "hidden"
	Redacted = "redacted"
)

// Concealer is a [View] that hides paths.
type Concealer interface {
	// Covers returns what a view that is built now hides, and notes on what it
	// cannot hide.
	Covers(ctx context.Context) (covers []Cover, notes []string, err error)
}
