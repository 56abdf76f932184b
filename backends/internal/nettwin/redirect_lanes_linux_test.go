package nettwin

import (
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestTranslationsOfTheHostAlone lets flows leave by a lane that the host's own
// nat would send to the proxy.
func TestTranslationsOfTheHostAlone(t *testing.T) {
	const server = "203.0.113.80:443"
	for _, c := range []struct {
		name, change string
		uid          int
	}{
		{"no redirection any more", "flush ruleset", 0},
		{"the exception of the proxy", "list ruleset", proxyUID},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := redirectLab(t, redirectAll)
			transparentProxy(t, l.host, "127.0.0.1:12345", "proxied", byNAT)
			l.mirror(t, Options{Ways: newNATTeller(t, l.host)})
			load(t, l.inside, c.change)
			if got, err := fetchFrom(l.inside, c.uid, server); err == nil || got != "" {
				t.Errorf("got %q, %v; want nothing", got, err)
			}
			l.wantLimit(t, 0, way.Translation, server)
		})
	}
}
