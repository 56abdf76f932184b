package nettwin

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// hostNAT sends what goes to port 70 to another.
const hostNAT = `table inet n { chain o { type nat hook output priority -100;
	tcp dport 70 redirect to :1; meta nfproto ipv4 tcp dport 80 dnat ip to 203.0.113.80:84; meta nfproto ipv4 udp dport 80 dnat ip to 203.0.113.80:81; }; }`

// TestTranslation takes the host's address translation out of the twin. The host
// still has it and would answer for a candidate that does without.
func TestTranslation(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "84")
	l.paths(t, "81")
	l.ruleset(t, l.host, hostNAT)
	l.mirror(t, Options{Ways: l.keeper})
	for _, gw := range []struct{ addr, seen string }{{"192.0.2.1", byGW1[0]}, {"192.0.2.254", byGW3[0]}} {
		l.run(t, "ip route replace default via "+gw.addr)
		for _, network := range []string{"tcp", "udp"} {
			if got, err := path(t, l.inside, network, servers[0]+":80"); got != gw.seen {
				t.Errorf("%s, translated by both: seen as %q, %v; want %q", network, got, err, gw.seen)
			}
		}
	}
	if ls := l.limits(t); len(ls) != 0 {
		t.Errorf("limits: %v", ls)
	}
	l.run(t, "nft delete table inet n")
	l.wantTranslated(t)
}

// TestTranslationComesLater gives the host its translation under a living twin.
func TestTranslationComesLater(t *testing.T) {
	l := newWaysLab(t)
	l.paths(t, "84")
	l.paths(t, "81")
	l.mirror(t, Options{Ways: l.keeper})
	l.ruleset(t, l.host, hostNAT)
	must(t, l.twin.Look())
	l.wantTranslated(t)
}

// wantTranslated expects that neither protocol is answered by what only the host
// translates.
func (l *waysLab) wantTranslated(t *testing.T) {
	t.Helper()
	if err := l.connect("tcp", servers[0]+":80", 3*time.Second); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("tcp: got %v, want a reset", err)
	}
	l.wantSilence(t, "udp", servers[0]+":80")
	ls := l.limits(t)
	if len(ls) != 2 || ls[0].Kind != way.Translation || ls[1].Kind != way.Translation {
		t.Errorf("limits: %v, want one of kind %s for each protocol", ls, way.Translation)
	}
}
