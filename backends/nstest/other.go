//go:build !linux

package nstest

import (
	"errors"
	"os"
	"testing"
)

func probeRoot() error     { return errors.ErrUnsupported }
func probeNetNS() error    { return errors.ErrUnsupported }
func probeOverlay() error  { return errors.ErrUnsupported }
func probeTUN() error      { return errors.ErrUnsupported }
func probeNFT() error      { return errors.ErrUnsupported }
func probeUserNS() error   { return errors.ErrUnsupported }
func probeIDMap() error    { return errors.ErrUnsupported }
func probeLandlock() error { return errors.ErrUnsupported }
func probeCgroup2() error  { return errors.ErrUnsupported }

func snapshot() []string          { return nil }
func leftovers([]string) []string { return nil }

// NS is the private place of one test; only Linux has one.
type NS struct{}

// New skips the test: there are no namespaces here.
func New(t testing.TB, _ ...Req) *NS {
	t.Helper()
	Require(t, Root)
	return &NS{}
}

// NewMount skips the test: there are no namespaces here.
func NewMount(t testing.TB, _ ...Req) *NS {
	t.Helper()
	Require(t, Root)
	return &NS{}
}

// Net returns nil.
func (*NS) Net() *os.File { return nil }

// Mnt returns nil.
func (*NS) Mnt() *os.File { return nil }

// Go panics.
func (*NS) Go(func()) { panic(errors.ErrUnsupported) }

// Run runs nothing.
func (*NS) Run(*testing.T, string, func(t *testing.T)) bool { return false }

// Join fails.
func (*NS) Join() error { return errors.ErrUnsupported }

// HostDump returns nothing.
func HostDump(testing.TB) string { return "" }
