//go:build !linux

package netlab

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
)

// Lab exists on Linux only.
type Lab struct{}

// Node exists on Linux only.
type Node struct{ Name string }

// New makes a lab in which nothing can be made.
func New() *Lab { return &Lab{} }

// Close has nothing to end.
func (*Lab) Close() error { return nil }

// Node is not supported here.
func (*Lab) Node(string) (*Node, error) { return nil, errors.ErrUnsupported }

// Hold is not supported here.
func (*Lab) Hold(string, int) (*Node, error) { return nil, errors.ErrUnsupported }

// Wire is not supported here.
func (*Lab) Wire(*Node, string, *Node, string) error { return errors.ErrUnsupported }

// NS is not supported here.
func (*Node) NS() *os.File { return nil }

// Do is not supported here.
func (*Node) Do(func() error) error { return errors.ErrUnsupported }

// Up is not supported here.
func (*Node) Up(string) error { return errors.ErrUnsupported }

// Move is not supported here.
func (*Node) Move(string, int) error { return errors.ErrUnsupported }

// MTU is not supported here.
func (*Node) MTU(string, int) error { return errors.ErrUnsupported }

// Address is not supported here.
func (*Node) Address(string, ...string) error { return errors.ErrUnsupported }

// Route is not supported here.
func (*Node) Route(string, string) error { return errors.ErrUnsupported }

// Sysctl is not supported here.
func (*Node) Sysctl(string, string) error { return errors.ErrUnsupported }

// Forward is not supported here.
func (*Node) Forward() error { return errors.ErrUnsupported }

// Listen is not supported here.
func (*Node) Listen(string, string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// ListenPacket is not supported here.
func (*Node) ListenPacket(string, string) (net.PacketConn, error) { return nil, errors.ErrUnsupported }

// Dial is not supported here.
func (*Node) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Bridge is not supported here.
func (*Node) Bridge(string, ...string) error { return errors.ErrUnsupported }

// RouteMetric is not supported here.
func (*Node) RouteMetric(string, string, int) error { return errors.ErrUnsupported }

// Start is not supported here.
func (*Node) Start(*exec.Cmd) error { return errors.ErrUnsupported }

// Run is not supported here.
func (*Node) Run(context.Context, ...string) (string, error) { return "", errors.ErrUnsupported }
