package workflow

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards/circuit"
)

// capture turns the host's established connections into circuits: each is a
// capability that somebody uses right now. Connections from this machine to
// itself cross no network that a change could cut and are left out.
func (w *Workflow) capture(ctx context.Context, wanted bool, spec backends.Spec) ([]circuit.Definition, []string) {
	c, ok := w.Backend.(backends.Connector)
	if !wanted || !ok {
		return nil, nil
	}
	conns, err := c.Connections(ctx)
	if err != nil {
		return nil, []string{"established connections were not captured: " + err.Error()}
	}
	var out []circuit.Definition
	seen := make(map[string]bool)
	for _, x := range session(conns) {
		remote, err := netip.ParseAddrPort(x.Remote)
		if err != nil || local(conns, remote.Addr()) {
			continue
		}
		d := circuit.Definition{Required: true, UID: spec.UID, GID: spec.GID, Interface: x.Interface}
		who := ""
		if x.Comm != "" {
			who = " (" + change.Escape(x.Comm) + ")"
		}
		if x.Direction == "inbound" {
			localPort, _ := netip.ParseAddrPort(x.Local)
			d.Kind, d.Address = circuit.Inbound, x.Local
			d.Label = fmt.Sprintf("from %s to port %d%s", remote.Addr(), localPort.Port(), who)
		} else {
			d.Kind, d.Address = circuit.Outbound, x.Remote
			d.Label = "to " + x.Remote + who
		}
		if seen[d.Label] {
			continue
		}
		seen[d.Label] = true
		d.ID = shortID()
		out = append(out, d)
	}
	return out, nil
}

// session puts the connection that carries this very session first: it is the
// one that must not be lost.
func session(conns []backends.Connection) []backends.Connection {
	f := strings.Fields(os.Getenv("SSH_CONNECTION")) // client ip, client port, server ip, server port
	if len(f) != 4 {
		return conns
	}
	client := netipJoin(f[0], f[1])
	var first, rest []backends.Connection
	for _, c := range conns {
		if c.Remote == client {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	return append(first, rest...)
}

func netipJoin(addr, port string) string {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return ""
	}
	if a.Is6() {
		return "[" + a.String() + "]:" + port
	}
	return a.String() + ":" + port
}

// local reports whether addr is this machine's own: loopback, or the local end
// of one of its connections.
func local(conns []backends.Connection, addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	for _, c := range conns {
		if ap, err := netip.ParseAddrPort(c.Local); err == nil && ap.Addr() == addr {
			return true
		}
	}
	return false
}

// shortID is an identifier that people can type.
func shortID() string {
	s := strings.ToLower(ulid.Make().String())
	return "c" + s[len(s)-8:]
}
