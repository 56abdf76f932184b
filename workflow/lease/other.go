//go:build !linux

package lease

import (
	"context"
	"errors"
)

// Lease is not available here.
type Lease struct{}

// Arm is not available here.
func Arm(context.Context, Config) (*Lease, error) { return nil, errors.ErrUnsupported }

// PID is not available here.
func (*Lease) PID() int { return 0 }

// Notes is not available here.
func (*Lease) Notes() []string { return nil }

// Lost is not available here.
func (*Lease) Lost() <-chan struct{} { return nil }

// Broken is not available here.
func (*Lease) Broken() <-chan string { return nil }

// Err is not available here.
func (*Lease) Err() error { return errors.ErrUnsupported }

// Renew is not available here.
func (*Lease) Renew() error { return errors.ErrUnsupported }

// Undoing is not available here.
func (*Lease) Undoing() error { return errors.ErrUnsupported }

// Release is not available here.
func (*Lease) Release(string) error { return errors.ErrUnsupported }

// Keep is not available here.
func Keep(context.Context, int, KeepConfig) error { return errors.ErrUnsupported }

// Leftovers is not available here.
func Leftovers() []string { return nil }

// Sweep is not available here.
func Sweep() {}
