package linuxns

import (
	"context"
	"errors"
	"os"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/holder"
)

// Tidy implements [backends.Tidier].
func (*Backend) Tidy(_ context.Context, specs []backends.Spec) ([]backends.Resource, error) {
	if os.Geteuid() != 0 { // nobody else makes any of it
		return nil, nil
	}
	var gone []backends.Resource
	var errs []error
	for _, s := range specs {
		group, err := holder.Settle(envdir.Dir(s.Dir))
		if group != "" {
			gone = append(gone, backends.Resource{Kind: kindCgroup, Name: group})
		}
		errs = append(errs, err)
	}
	return gone, errors.Join(errs...)
}

var _ backends.Tidier = (*Backend)(nil)
