package nettwin

import (
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// waysLab is a [testLab] whose host forwards nothing, drops what it would forward
// and filters by reverse path, with somebody who makes it go the twin's ways.
type waysLab struct {
	*testLab
	keeper *testKeeper
}

// servers are the server's addresses on gw1's side: v4, v6.
var servers = [2]string{"203.0.113.80", "[2001:db8:80::80]"}

// How the server sees a client that came by each gateway: v4, v6.
var (
	byGW1 = [2]string{"one 192.0.2.2", "one 2001:db8:1::2"}
	byGW2 = [2]string{"two 198.51.100.2", "two 2001:db8:2::2"}
	byGW3 = [2]string{"three 192.0.2.2", "three 2001:db8:1::2"}
)

func newWaysLab(t *testing.T) *waysLab {
	t.Helper()
	l := &waysLab{testLab: newLab(t, nstest.NFT, nstest.Tool("nft"), nstest.Tool("ip"))}
	must(t, errors.Join(l.host.Sysctl("ipv4/ip_forward", "0"), l.host.Sysctl("ipv6/conf/all/forwarding", "0")))
	l.ruleset(t, l.host, "table inet f { chain through { type filter hook forward priority 0; policy drop; }; }")
	l.keeper = newTestKeeper(t, l.host)
	return l
}

func (l *testLab) ruleset(t testing.TB, n *netlab.Node, text string) {
	t.Helper()
	_, err := n.Run(t.Context(), "nft", text)
	must(t, err)
}

// limits lists the limits met since the twin was made.
func (l *testLab) limits(t testing.TB) []way.Limit {
	t.Helper()
	ls, _, err := l.twin.Limits(0)
	must(t, err)
	return ls
}

// testKeeper is a keeper that counts.
type testKeeper struct {
	way.Keeper
	mu       sync.Mutex
	admitted map[way.Flow]bool
	asked    map[way.Lane]bool
	// translated is what the host's nat is said to do, when it is set.
	translated func(way.Flow) (netip.AddrPort, error)
}

// newTestKeeper watches lanes on a host. What they made there goes with the test, or
// with close.
func newTestKeeper(t testing.TB, host *netlab.Node) *testKeeper {
	t.Helper()
	k, err := lanes.Open(host.NS(), lanes.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, k.Close()) })
	return &testKeeper{Keeper: k, admitted: map[way.Flow]bool{}, asked: map[way.Lane]bool{}}
}

func (s *testKeeper) Lane(l way.Lane) (uint32, error) {
	s.mu.Lock()
	s.asked[l] = true
	s.mu.Unlock()
	return s.Keeper.Lane(l)
}

func (s *testKeeper) Admit(f way.Flow) error {
	err := s.Keeper.Admit(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.admitted[f] = true
	}
	return err
}

func (s *testKeeper) Release(f way.Flow) {
	s.Keeper.Release(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.admitted, f)
}

// Holds implements [way.Holder].
func (s *testKeeper) Holds(f way.Flow) bool { return s.Keeper.(*lanes.Lanes).Holds(f) }

func (s *testKeeper) Translated(f way.Flow) (netip.AddrPort, error) {
	if s.translated != nil {
		return s.translated(f)
	}
	return s.Keeper.Translated(f)
}

// open counts the flows that are let in.
func (s *testKeeper) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.admitted)
}

// lanes counts those that were asked for.
func (s *testKeeper) lanes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// ensure looks after the lanes, as is done before each probe.
func (s *testKeeper) ensure() error { return s.Keeper.(*lanes.Lanes).Ensure() }

// close removes everything from the host.
func (s *testKeeper) close() error { return s.Keeper.(*lanes.Lanes).Close() }
