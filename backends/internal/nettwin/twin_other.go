//go:build !linux

package nettwin

import (
	"context"
	"errors"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Twin exists on Linux only.
type Twin struct{}

// Mirror is not supported here.
func Mirror(context.Context, int, Options) (*Twin, error) { return nil, errors.ErrUnsupported }

// Difference is not supported here.
func (*Twin) Difference() ([]Difference, error) { return nil, errors.ErrUnsupported }

// AddRelay is not supported here.
func (*Twin) AddRelay(...uint16) error { return errors.ErrUnsupported }

// Look is not supported here.
func (*Twin) Look() error { return errors.ErrUnsupported }

// Counts is not supported here.
func (*Twin) Counts() (relay.Counts, error) { return relay.Counts{}, errors.ErrUnsupported }

// Limits is not supported here.
func (*Twin) Limits(since uint64) ([]way.Limit, uint64, error) {
	return nil, since, errors.ErrUnsupported
}

// Reset is not supported here.
func (*Twin) Reset(context.Context) error { return errors.ErrUnsupported }

// Notes is not supported here.
func (*Twin) Notes() []string { return nil }

// Status is not supported here.
func (*Twin) Status() Status { return Status{} }

// Close is not supported here.
func (*Twin) Close() error { return errors.ErrUnsupported }
