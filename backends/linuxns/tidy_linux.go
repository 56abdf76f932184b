package linuxns

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/holder"
)

// Tidy implements [backends.Tidier].
func (*Backend) Tidy(_ context.Context, specs []backends.Spec) ([]backends.Resource, error) {
	if os.Geteuid() != 0 { // nobody else makes any of it
		return nil, nil
	}
	gone, err := sweep()
	errs := []error{err}
	for _, s := range specs {
		group, err := holder.Settle(envdir.Dir(s.Dir))
		if group != "" {
			gone = append(gone, backends.Resource{Kind: kindCgroup, Name: group})
		}
		errs = append(errs, err)
	}
	return gone, errors.Join(errs...)
}

// sweep removes the routes and rules of dead holders from the network of the
// calling thread.
func sweep() ([]backends.Resource, error) {
	ns, err := netns.Current()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	objects, err := lanes.Sweep(int(ns.Fd()))
	var gone []backends.Resource
	for _, o := range objects {
		kind, rest, _ := strings.Cut(o.Text, " ")
		gone = append(gone, backends.Resource{Kind: kind, Name: rest})
	}
	return gone, err
}

func sweepLanes() error {
	_, err := sweep()
	return err
}

var _ backends.Tidier = (*Backend)(nil)
