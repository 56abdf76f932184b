package nettwin

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// TestMultipathClients speaks multipath TCP to what answers with plain TCP, as a
// program does that was started by mptcpize(8).
func TestMultipathClients(t *testing.T) {
	l := redirectLab(t, redirectAll)
	transparentProxy(t, l.host, "127.0.0.1:12345", "proxied", byNAT)
	greet(t, l.host, "127.0.0.1:7890", "host\n")
	l.mirror(t, Options{Relay: []uint16{7890}, Ways: newNATTeller(t, l.host)})
	for addr, want := range map[string]string{"203.0.113.80:443": "proxied 203.0.113.80:443\n", "127.0.0.1:7890": "host\n"} {
		d := net.Dialer{Timeout: 3 * time.Second}
		d.SetMultipathTCP(true)
		var c net.Conn
		must(t, l.inside.Do(func() (err error) {
			c, err = d.Dial("tcp", addr)
			return err
		}))
		defer c.Close()
		c.SetDeadline(time.Now().Add(3 * time.Second))
		if got, err := bufio.NewReader(c).ReadString('\n'); got != want || err != nil {
			t.Errorf("%s: got %q, %v; want %q", addr, got, err, want)
		}
	}
	l.wantNoLimit(t)
}
