package nettwin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// Twin is a namespace filled with the host's network, and the process that
// carries its traffic.
type Twin struct {
	opt  Options
	host *os.File // the host's network namespace
	ns   *os.File // the twin's

	mu       sync.Mutex
	taps     []*os.File // held here too: a relay that dies takes no link with it
	relay    *relay.Process
	loop     *loopback
	notes    []string
	refused  uint64    // packets, when the relay was last told
	looked   time.Time // when the last look began
	baseline snapshot
}

// Mirror fills the network namespace n, which somebody else made and owns, from
// the namespace of the calling thread, and starts the relay. n stays the
// caller's to close. On error nothing is left running; what was made in n goes
// with n.
func Mirror(ctx context.Context, n int, opt Options) (*Twin, error) {
	fd, err := unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("hold network namespace: %w", err)
	}
	t := &Twin{opt: opt, ns: os.NewFile(uintptr(fd), "twin")}
	if t.host, err = netns.Current(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := t.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("mirror network: %w", err), t.Close())
	}
	return t, nil
}

// build makes everything in a namespace that has nothing yet.
func (t *Twin) build(ctx context.Context) error {
	// Starting a process takes as long as all the rest, so it is done beside it.
	started, translates := make(chan error, 1), make(chan bool, 1)
	go func() { started <- t.spawn() }()
	go func() { translates <- t.translates() }()
	r, err := t.fill()
	nat := <-translates
	if err := errors.Join(err, <-started, ctx.Err()); err != nil {
		return err
	}
	if err := t.serve(r, nat); err != nil {
		return err
	}
	if err := t.serveLoopback(r.host); err != nil { //nolint:contextcheck // a socket is opened at once
		return err
	}
	t.boundNeighbors(r)
	if !t.opt.Unrecorded {
		t.baseline, err = t.record()
	}
	return err
}

// spawn starts the relay in the host's namespace.
func (t *Twin) spawn() error {
	return netns.Do(int(t.host.Fd()), func() (err error) {
		t.relay, err = relay.Spawn(cmp.Or(t.opt.Exe, "/proc/self/exe"), t.opt.Stderr, t.opt.Ways)
		return err
	})
}

// fill reads the host's network and makes the like in the twin.
func (t *Twin) fill() (*replica, error) {
	host, err := observe(int(t.host.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read network of host: %w", err)
	}
	r := &replica{ns: int(t.ns.Fd()), host: host, shift: t.shift()}
	err = r.build()
	for _, p := range r.ports {
		if p.tap != nil {
			t.taps = append(t.taps, p.tap)
		}
	}
	t.notes = append(r.notes, missing(host)...)
	if err == nil {
		t.notes = append(t.notes, t.loadRuleset(r)...)
	}
	return r, err
}

// translates reports whether the host may send what it sends elsewhere: each flow
// is then looked at. When its rules cannot be read, it may.
func (t *Twin) translates() bool {
	if t.opt.Ways == nil { // nobody could look
		return false
	}
	seen, err := Firewall(int(t.host.Fd()))
	return err != nil || seen.OutputNAT || seen.SourceNAT
}

// serve hands the relay the TAPs and lets it begin.
func (t *Twin) serve(r *replica, nat bool) error {
	for _, p := range r.ports {
		if p.tap == nil {
			continue
		}
		_, err := t.relay.Do(relay.Request{Interface: &relay.Interface{
			Name: p.host.Name, Index: p.host.Index, MAC: p.mac, MTU: p.host.MTU, Tun: bare(p.host), Mute: mute(p.host), Static: r.static[p.index],
		}}, p.tap)
		if err != nil {
			return fmt.Errorf("hand over tap %s: %w", p.host.Name, err)
		}
	}
	if _, err := t.relay.Do(relay.Request{Start: &relay.Start{Cut: t.opt.Cut, Translates: nat, Idle: t.opt.idle}}, nil); err != nil {
		return fmt.Errorf("start relay: %w", err)
	}
	return nil
}

// serveLoopback opens the loopback relay. A twin without it is poorer, not
// broken: a kernel may lack nf_tables.
func (t *Twin) serveLoopback(host *network) error {
	servers, err := t.resolvers(host)
	if err != nil {
		return err
	}
	t.loop, err = t.openLoopback(host, servers)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		t.notes = append(t.notes, fmt.Sprintf("no service on the host's loopback is reachable: %v", err))
		return nil
	}
	if err != nil {
		return err
	}
	if !t.loop.table.Owned {
		t.notes = append(t.notes, "flushing nftables inside cuts the loopback relay for a second: this kernel has no owned tables (5.12)")
	}
	return t.loop.add(t.opt.Relay)
}

// resolvers are the name servers that are the host itself.
func (t *Twin) resolvers(host *network) ([]netip.Addr, error) {
	found := t.opt.Resolvers
	if found == nil {
		f, err := os.Open(cmp.Or(t.opt.ResolvConf, "/etc/resolv.conf"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read name servers: %w", err)
		}
		if err == nil {
			defer f.Close()
			found = nameservers(f)
		}
	}
	servers := slices.Clone(stubs)
	for _, a := range found {
		if a.IsLoopback() || slices.Contains(host.own(), a) {
			servers = append(servers, a)
		}
	}
	slices.SortFunc(servers, netip.Addr.Compare)
	return slices.Compact(servers), nil
}

// AddRelay makes ports of TCP and UDP on the host's loopback and own addresses
// reachable from the twin, each for as long as nothing inside listens on it.
func (t *Twin) AddRelay(ports ...uint16) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loop == nil {
		return fmt.Errorf("add relay ports: %w", errors.ErrUnsupported)
	}
	if err := t.relay.Err(); err != nil {
		return fmt.Errorf("add relay ports: %w: %w", ErrRelayGone, err)
	}
	for _, p := range ports { // for the next Reset
		if !slices.Contains(t.opt.Relay, p) {
			t.opt.Relay = append(slices.Clone(t.opt.Relay), p)
		}
	}
	return t.look(ports)
}

// Look asks now, and not at the next poll, who listens inside and on the host, and
// whether the host has come to translate addresses. A probe calls it first: it
// must not be answered by the wrong side, nor refused what the host offers again.
// Those who wait at the same time share a look that began after they came.
func (t *Twin) Look() error {
	came := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.opt.Cut || t.looked.After(came) {
		return nil
	}
	if t.relay == nil {
		return fmt.Errorf("look at host: %w", ErrRelayGone)
	}
	if err := t.relay.Err(); err != nil {
		return fmt.Errorf("look at host: %w: %w", ErrRelayGone, err)
	}
	return t.look(nil)
}

// look is one look, with ports that are relayed from now on. The caller holds t.mu.
func (t *Twin) look(ports []uint16) error {
	began := time.Now()
	nat := t.translates()
	if _, err := t.relay.Do(relay.Request{Translates: &nat}, nil); err != nil {
		return fmt.Errorf("tell relay of the host's nat: %w", err)
	}
	if t.loop != nil {
		if err := t.loop.add(ports); err != nil {
			return err
		}
	}
	t.looked = began
	return nil
}

// Notes says what of the host's network the twin could not be given.
func (t *Twin) Notes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.notes)
}

// Status says whether the relay lives.
func (t *Twin) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{Cut: t.opt.Cut}
	if t.relay == nil {
		return s
	}
	s.Relay = t.relay.PID()
	if t.loop != nil {
		s.Released = t.loop.taken()
	}
	if err := t.relay.Err(); err != nil {
		s.Err = err.Error()
	}
	return s
}

// Counts says what the relay has seen.
func (t *Twin) Counts() (relay.Counts, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.relay == nil || t.relay.Err() != nil {
		return relay.Counts{}, fmt.Errorf("count packets: %w", ErrRelayGone)
	}
	return t.relay.Do(relay.Request{Count: true}, nil)
}

// Limits says what the twin could not do as the host would since a number, oldest
// first, and the number to ask with the next time; 0 asks for all. A check that
// failed while one was met proves nothing about the candidate.
func (t *Twin) Limits(since uint64) (limits []way.Limit, next uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.relay == nil || t.relay.Err() != nil {
		return nil, since, fmt.Errorf("list limits: %w", ErrRelayGone)
	}
	if err := t.meetNeighbors(); err != nil {
		return nil, since, fmt.Errorf("list limits: %w", err)
	}
	return t.relay.Limits(since)
}

// Close ends the relay and lets go of every descriptor. The TAPs vanish with
// them.
func (t *Twin) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := []error{t.release()}
	for _, f := range []*os.File{t.ns, t.host} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	t.ns, t.host = nil, nil
	return errors.Join(errs...)
}

// release ends what build made. It may be half made, or not at all.
func (t *Twin) release() error {
	var errs []error
	if t.loop != nil {
		errs = append(errs, t.loop.close())
		t.loop = nil
	}
	if t.relay != nil {
		errs = append(errs, t.relay.Close())
		t.relay = nil
	}
	errs = append(errs, closeTAPs(t.taps))
	t.taps, t.notes, t.baseline, t.refused = nil, nil, nil, 0
	return errors.Join(errs...)
}
