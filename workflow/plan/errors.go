package plan

import "errors"

var (
	// ErrNotFound: the store has no plan of that digest.
	ErrNotFound = errors.New("plan not found")
	// ErrDamaged: what is in the store is not what its name says.
	ErrDamaged = errors.New("plan is damaged")
	// ErrMoved: a wanted file is no longer what the plan was made of.
	ErrMoved = errors.New("the layer changed while the plan was made")
)
