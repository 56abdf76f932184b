package nettwin

import (
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestHostHasNoPortLeft has a host with two ports for clients, both in use to one
// destination, and a twin with more. To another destination they can be used again.
func TestHostHasNoPortLeft(t *testing.T) {
	l := newWaysLab(t)
	for _, port := range []string{":80", ":81"} {
		ln, err := l.server.Listen("tcp", port)
		must(t, err)
		defer ln.Close()
	}
	l.mirror(t, Options{Ways: l.keeper})
	must(t, l.host.Sysctl("ipv4/ip_local_port_range", "40000 40001"))
	for _, port := range []string{":80", ":80", ":81"} {
		c, err := l.inside.Dial(within(t, 3*time.Second), "tcp", servers[0]+port)
		must(t, err)
		defer c.Close()
	}
	if ls := l.limits(t); len(ls) > 0 {
		t.Errorf("limits were met: %v", ls)
	}
	if c, err := l.inside.Dial(within(t, 3*time.Second), "tcp", servers[0]+":80"); err == nil {
		c.Close()
		t.Error("a third connection was made")
	}
	l.wantOnly(t, way.Load, servers[0])
}

// TestHostHasNoPortLeftForItself is that for a service of the host, to which the
// twin's own kernel completes the handshake.
func TestHostHasNoPortLeftForItself(t *testing.T) {
	l := newWaysLab(t)
	ln, err := l.host.Listen("tcp", "127.0.0.1:8080")
	must(t, err)
	defer ln.Close()
	l.mirror(t, Options{Ways: l.keeper, Relay: []uint16{8080}})
	must(t, l.host.Sysctl("ipv4/ip_local_port_range", "40000 40001"))
	for range 3 {
		c, err := l.inside.Dial(within(t, 3*time.Second), "tcp", "127.0.0.1:8080")
		must(t, err)
		defer c.Close()
	}
	eventually(t, "the third connection has met a limit", func() bool { return len(l.limits(t)) > 0 })
	l.wantOnly(t, way.Load, "127.0.0.1:8080")
}
