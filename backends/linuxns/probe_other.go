//go:build !linux

package linuxns

import (
	"context"

	"github.com/netsandbox/netsandbox/backends"
)

// Doctor finds out what this machine can do.
type Doctor struct{}

// Probe implements [backends.Prober].
func (Doctor) Probe(context.Context, string) []backends.Finding {
	return []backends.Finding{{Name: "linux", Status: "missing", Detail: "views need a Linux kernel"}}
}

var _ backends.Prober = Doctor{}
