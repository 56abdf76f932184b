//go:build !linux

package hostfiles

import (
	"context"
	"errors"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// Host cannot reach files on this system.
type Host struct{}

// New returns an adapter that answers [errors.ErrUnsupported].
func New(string) *Host { return &Host{} }

// Kind implements [backends.Host].
func (h *Host) Kind() change.Kind { return change.KindFile }

// Observe implements [backends.Host].
func (h *Host) Observe(context.Context, []change.Path) ([]*change.Entry, error) {
	return nil, errors.ErrUnsupported
}

// ObserveKnown is Observe.
func (h *Host) ObserveKnown(context.Context, []change.Path, []*change.Entry) ([]*change.Entry, error) {
	return nil, errors.ErrUnsupported
}

// Preflight implements [backends.Host].
func (h *Host) Preflight(context.Context, []change.Change) ([]change.Blocker, error) {
	return nil, errors.ErrUnsupported
}

// Snapshot implements [backends.Host].
func (h *Host) Snapshot(context.Context, string, []change.Change) ([]backends.Step, error) {
	return nil, errors.ErrUnsupported
}

// Stage implements [backends.Host].
func (h *Host) Stage(context.Context, []backends.Step, backends.Wanted) ([]backends.Step, error) {
	return nil, errors.ErrUnsupported
}

// Swap implements [backends.Host].
func (h *Host) Swap(context.Context, []backends.Step) error { return errors.ErrUnsupported }

// Verify implements [backends.Host].
func (h *Host) Verify(context.Context, []backends.Step) ([]backends.Leftover, error) {
	return nil, errors.ErrUnsupported
}

// Undo implements [backends.Host].
func (h *Host) Undo(context.Context, []backends.Step) ([]backends.Leftover, error) {
	return nil, errors.ErrUnsupported
}

// Clean implements [backends.Host].
func (h *Host) Clean(context.Context, []backends.Step, bool) error { return errors.ErrUnsupported }

var _ backends.Host = (*Host)(nil)
