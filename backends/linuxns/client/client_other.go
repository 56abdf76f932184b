//go:build !linux

package client

import (
	"context"
	"errors"

	"github.com/netsandbox/netsandbox/backends"
)

// Exec is not supported here.
func Exec(context.Context, backends.Spec, Request) (int, error) {
	return StatusFailed, errors.ErrUnsupported
}

// Signals are none here.
type Signals struct{}

// Catch catches nothing here.
func Catch() *Signals { return &Signals{} }

// Run is not supported here.
func Run(context.Context, backends.Spec, Request, *Signals, func() error) (int, error) {
	return StatusFailed, errors.ErrUnsupported
}

// Start is not supported here.
func Start(context.Context, backends.Spec) error { return errors.ErrUnsupported }
