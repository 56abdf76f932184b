package demonet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
)

// The addresses of the world (RFC 5737).
const (
	HostLink = "eth0"
	HostAddr = "192.0.2.10"
	Gateway  = "192.0.2.1"
	API      = "198.51.100.80"
)

// Net is the network of a world. The namespace that the process is in is the
// host of the story.
type Net struct {
	lab      *netlab.Lab
	gw, api  *netlab.Node
	children []*exec.Cmd
}

// New builds the network: host - gateway - API.
func New() (n *Net, err error) {
	self, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("build demo network: %w", err)
	}
	defer self.Close()
	n = &Net{lab: netlab.New()}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.lab.Close())
		}
	}()
	host, err := n.lab.Hold("host", int(self.Fd()))
	if err != nil {
		return nil, err
	}
	if n.gw, err = n.lab.Node("gateway"); err != nil {
		return nil, err
	}
	if n.api, err = n.lab.Node("api"); err != nil {
		return nil, err
	}
	return n, first(
		func() error { return host.Up("lo") },
		func() error { return n.lab.Wire(host, HostLink, n.gw, "lan") },
		func() error { return n.lab.Wire(n.gw, "wan", n.api, "eth0") },
		func() error { return host.Address(HostLink, HostAddr+"/24") },
		func() error { return n.gw.Address("lan", Gateway+"/24") },
		func() error { return n.gw.Address("wan", "198.51.100.1/24") },
		func() error { return n.api.Address("eth0", API+"/24") },
		func() error { return host.Route("0.0.0.0/0", Gateway) },
		func() error { return n.api.Route("0.0.0.0/0", "198.51.100.1") },
		n.gw.Forward,
	)
}

// first returns the first error of steps in order.
func first(steps ...func() error) error {
	for _, s := range steps {
		if err := s(); err != nil {
			return err
		}
	}
	return nil
}

// OnGateway and OnAPI start a server there and wait until it answers at addr,
// as seen from the host.
func (n *Net) OnGateway(ctx context.Context, addr string, argv ...string) error {
	return n.serve(ctx, n.gw, addr, argv)
}

// OnAPI is OnGateway for the API server.
func (n *Net) OnAPI(ctx context.Context, addr string, argv ...string) error {
	return n.serve(ctx, n.api, addr, argv)
}

func (n *Net) serve(ctx context.Context, at *netlab.Node, addr string, argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	if err := at.Start(cmd); err != nil {
		return fmt.Errorf("start %s on %s: %w", argv[0], at.Name, err)
	}
	n.children = append(n.children, cmd)
	if err := Reach(ctx, addr); err != nil {
		return fmt.Errorf("wait for %s on %s: %w", argv[0], at.Name, err)
	}
	return nil
}

// Close ends the servers and the network.
func (n *Net) Close() error {
	for _, c := range n.children {
		if err := c.Process.Signal(syscall.SIGKILL); err == nil {
			_ = c.Wait() // it was killed
		}
	}
	return n.lab.Close()
}
