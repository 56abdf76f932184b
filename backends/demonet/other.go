//go:build !linux

package demonet

import (
	"context"
	"errors"
	"os/exec"
)

// The addresses of the world (RFC 5737).
const (
	HostLink = "eth0"
	HostAddr = "192.0.2.10"
	Gateway  = "192.0.2.1"
	API      = "198.51.100.80"
)

// Net is not available here.
type Net struct{}

// World is not available here.
func World(*exec.Cmd) error { return errors.ErrUnsupported }

// Furnish is not available here.
func Furnish(string) error { return errors.ErrUnsupported }

// Reap is not available here.
func Reap(*exec.Cmd) (int, error) { return 0, errors.ErrUnsupported }

// New is not available here.
func New() (*Net, error) { return nil, errors.ErrUnsupported }

// OnGateway is not available here.
func (*Net) OnGateway(context.Context, string, ...string) error { return errors.ErrUnsupported }

// OnAPI is not available here.
func (*Net) OnAPI(context.Context, string, ...string) error { return errors.ErrUnsupported }

// Close is not available here.
func (*Net) Close() error { return nil }

// Groups is not available here.
func Groups(string) ([]string, error) { return nil, errors.ErrUnsupported }

// Look is not available here.
func Look() ([]string, error) { return nil, errors.ErrUnsupported }

// Clear is not available here.
func Clear(string) error { return errors.ErrUnsupported }
