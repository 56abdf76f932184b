//go:build !linux

package lanes

import (
	"errors"
	"net/netip"
	"os"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Lanes exist on Linux only.
type Lanes struct{}

// Open is not supported here.
func Open(*os.File, Options) (*Lanes, error) { return nil, errors.ErrUnsupported }

// Lane is not supported here.
func (*Lanes) Lane(way.Lane) (uint32, error) { return 0, errors.ErrUnsupported }

// Admit is not supported here.
func (*Lanes) Admit(way.Flow) error { return errors.ErrUnsupported }

// Release has nothing to release.
func (*Lanes) Release(way.Flow) {}

// Translated is not supported here.
func (*Lanes) Translated(way.Flow) (netip.AddrPort, error) {
	return netip.AddrPort{}, errors.ErrUnsupported
}

// Ensure is not supported here.
func (*Lanes) Ensure() error { return errors.ErrUnsupported }

// Close has nothing to remove.
func (*Lanes) Close() error { return nil }

// Sweep is not supported here.
func Sweep(int) ([]Object, error) { return nil, errors.ErrUnsupported }

// Find is not supported here.
func Find(int) ([]Object, error) { return nil, errors.ErrUnsupported }

// Conflicts is not supported here.
func Conflicts(int) ([]Conflict, error) { return nil, errors.ErrUnsupported }

var _ way.Keeper = (*Lanes)(nil)
