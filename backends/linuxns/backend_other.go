//go:build !linux

package linuxns

import (
	"context"
	"errors"

	"github.com/netsandbox/netsandbox/backends"
)

// Backend makes environments in namespaces of a Linux kernel.
type Backend struct{ Doctor }

// New returns the backend.
func New() *Backend { return &Backend{} }

// Name implements [backends.Backend].
func (*Backend) Name() string { return "linux" }

// Open implements [backends.Backend].
func (*Backend) Open(backends.Spec) backends.View { return nil }

// Create is not supported here.
func (*Backend) Create(context.Context, backends.Spec) (backends.Created, error) {
	return backends.Created{}, errors.ErrUnsupported
}

// Sweep is not supported here.
func (*Backend) Sweep(context.Context, backends.Resource) error { return errors.ErrUnsupported }

// Exec is not supported here.
func (*Backend) Exec(context.Context, backends.Spec, backends.ExecRequest) (int, error) {
	return 125, errors.ErrUnsupported
}

// Connections is not supported here.
func (*Backend) Connections(context.Context) ([]backends.Connection, error) {
	return nil, errors.ErrUnsupported
}

var (
	_ backends.Backend  = (*Backend)(nil)
	_ backends.Executor = (*Backend)(nil)
)
