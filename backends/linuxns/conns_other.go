//go:build !linux

package linuxns

import (
	"context"
	"errors"

	"github.com/netsandbox/netsandbox/backends"
)

// Connections lists the established TCP connections of the host.
type Connections struct{}

// Connections implements [backends.Connector].
func (Connections) Connections(context.Context) ([]backends.Connection, error) {
	return nil, errors.ErrUnsupported
}

var _ backends.Connector = Connections{}
