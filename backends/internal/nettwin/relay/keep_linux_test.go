package relay

import (
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// logged is a keeper that does nothing and remembers what it was asked for.
type logged struct {
	mu       sync.Mutex
	lanes    []way.Lane
	admitted map[way.Flow]int
	wait     chan struct{} // when set, Lane returns after it is closed
}

func (k *logged) Lane(l way.Lane) (uint32, error) {
	if k.wait != nil {
		<-k.wait
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lanes = append(k.lanes, l)
	return 7, nil
}

func (k *logged) Admit(f way.Flow) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.admitted[f]++
	return nil
}

func (k *logged) Release(f way.Flow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.admitted[f]--; k.admitted[f] == 0 {
		delete(k.admitted, f)
	}
}

func (k *logged) Translated(way.Flow) (netip.AddrPort, error) { return netip.AddrPort{}, nil }

// conversation is the relay's end of a second socket whose other end serves ways.
func conversation(t *testing.T, ways way.Keeper) (*net.UnixConn, *keep) {
	t.Helper()
	ours, theirs, err := SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := controlConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	k := newKeep(ours, ways)
	t.Cleanup(func() {
		c.Close()
		k.close()
	})
	k.link(3)
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c, k
}

func put(t *testing.T, c *net.UnixConn, q ask, f *os.File) told {
	t.Helper()
	b, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	var oob []byte
	if f != nil {
		oob = unix.UnixRights(int(f.Fd()))
	}
	if _, _, err := c.WriteMsgUnix(b, oob, nil); err != nil {
		t.Fatal(err)
	}
	in := make([]byte, maxAsk)
	n, err := c.Read(in)
	if err != nil {
		t.Fatal(err)
	}
	var a told
	if err := json.Unmarshal(in[:n], &a); err != nil {
		t.Fatal(err)
	}
	if a.ID != q.ID {
		t.Fatalf("answer to %d, want %d", a.ID, q.ID)
	}
	return a
}

func TestKeepRefusesLanes(t *testing.T) {
	k := &logged{admitted: map[way.Flow]int{}}
	c, _ := conversation(t, k)
	for _, l := range []way.Lane{
		{Index: 4},
		{Index: -1},
		{Index: 3, NextHop: netip.MustParseAddr("127.0.0.1")},
		{Index: 3, NextHop: netip.MustParseAddr("224.0.0.1")},
		{Index: 3, NextHop: netip.MustParseAddr("0.0.0.0")},
		{Index: 3, NextHop: netip.MustParseAddr("192.0.2.1"), Six: true},
		{Index: 3, NextHop: netip.MustParseAddr("::1"), Six: true},
		{Index: 3, NextHop: netip.MustParseAddr("::ffff:192.0.2.1"), Six: true},
		{Index: 3, NextHop: netip.MustParseAddr("fe80::1%eth0"), Six: true},
	} {
		if a := put(t, c, ask{ID: 1, Lane: &l}, nil); a.Limit == nil || a.Mark != 0 {
			t.Errorf("%+v: answered %+v, want a limit", l, a)
		}
	}
	for _, l := range []way.Lane{
		{Index: 3},
		{Index: 3, NextHop: netip.MustParseAddr("192.0.2.1")},
		{Index: 3, NextHop: netip.MustParseAddr("fe80::1")}, // IPv4 by an IPv6 gateway
		{Index: 3, NextHop: netip.MustParseAddr("fe80::1"), Six: true},
	} {
		if a := put(t, c, ask{ID: 2, Lane: &l}, nil); a.Mark != 7 {
			t.Errorf("%+v: answered %+v, want a mark", l, a)
		}
	}
	if len(k.lanes) != 4 {
		t.Errorf("the keeper was asked for %v", k.lanes)
	}
}

// bound is a socket of a protocol with an address on loopback, and that address.
func bound(t *testing.T, network string) (*os.File, netip.AddrPort) {
	t.Helper()
	typ := unix.SOCK_STREAM
	if network == "udp" {
		typ = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(unix.AF_INET, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), network)
	t.Cleanup(func() { f.Close() })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return f, addrPort(sa)
}

// TestKeepAdmitsOwnSocketsOnly asks to let in the answers to somebody else's flow.
func TestKeepAdmitsOwnSocketsOnly(t *testing.T) {
	k := &logged{admitted: map[way.Flow]int{}}
	c, _ := conversation(t, k)
	tcp, at := bound(t, "tcp")
	udp, _ := bound(t, "udp")
	dst := netip.MustParseAddrPort("203.0.113.80:80")
	good := way.Flow{Proto: unix.IPPROTO_TCP, Src: at, Dst: dst, Lane: way.Lane{Index: 3}}
	with := func(change func(*way.Flow)) *way.Flow {
		f := good
		change(&f)
		return &f
	}
	for name, q := range map[string]struct {
		flow *way.Flow
		sock *os.File
	}{
		"no socket":              {&good, nil},
		"another protocol's":     {&good, udp},
		"another port":           {with(func(f *way.Flow) { f.Src = netip.AddrPortFrom(at.Addr(), at.Port()^1) }), tcp},
		"another address":        {with(func(f *way.Flow) { f.Src = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), at.Port()) }), tcp},
		"no destination":         {with(func(f *way.Flow) { f.Dst = netip.AddrPort{} }), tcp},
		"every port":             {with(func(f *way.Flow) { f.Dst = netip.AddrPortFrom(dst.Addr(), 0) }), tcp},
		"a protocol of no twin":  {with(func(f *way.Flow) { f.Proto = unix.IPPROTO_SCTP }), tcp},
		"another family":         {with(func(f *way.Flow) { f.Lane.Six = true }), tcp},
		"a link of somebody's":   {with(func(f *way.Flow) { f.Lane.Index = 4 }), tcp},
		"something that is none": {with(func(f *way.Flow) { f.Lane.NextHop = netip.MustParseAddr("::") }), tcp},
	} {
		if a := put(t, c, ask{ID: 5, Admit: q.flow}, q.sock); a.Err == "" && a.Limit == nil {
			t.Errorf("%s: admitted", name)
		}
	}
	if len(k.admitted) != 0 {
		t.Errorf("the keeper was asked for %v", k.admitted)
	}
	if a := put(t, c, ask{ID: 6, Admit: &good}, tcp); a.Err != "" || a.Limit != nil || k.admitted[good] != 1 {
		t.Errorf("the relay's own: answered %+v", a)
	}
	if put(t, c, ask{ID: 7, Release: with(func(f *way.Flow) { f.Dst = netip.AddrPortFrom(dst.Addr(), 81) })}, nil); k.admitted[good] != 1 {
		t.Error("a release of another flow released this one")
	}
}

// TestKeepReleasesAll ends the conversation in the ways that it can end.
func TestKeepReleasesAll(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *net.UnixConn){
		"the relay is gone": func(_ *testing.T, c *net.UnixConn) { c.Close() },
		"not a question": func(t *testing.T, c *net.UnixConn) {
			if _, err := c.Write([]byte("{")); err != nil {
				t.Fatal(err)
			}
		},
		"too long": func(t *testing.T, c *net.UnixConn) {
			if _, err := c.Write([]byte(`{"id":1}` + strings.Repeat(" ", maxAsk))); err != nil {
				t.Fatal(err)
			}
		},
		"two sockets": func(t *testing.T, c *net.UnixConn) {
			f, _ := bound(t, "udp")
			if _, _, err := c.WriteMsgUnix([]byte(`{"id":1}`), unix.UnixRights(int(f.Fd()), int(f.Fd())), nil); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &logged{admitted: map[way.Flow]int{}}
			c, kept := conversation(t, k)
			sock, at := bound(t, "tcp")
			f := way.Flow{Proto: unix.IPPROTO_TCP, Src: at, Dst: netip.MustParseAddrPort("203.0.113.80:80"), Lane: way.Lane{Index: 3}}
			for range 2 { // a lane's flow is let in once, however often it is asked for
				put(t, c, ask{ID: 1, Admit: &f}, sock)
			}
			if k.admitted[f] != 1 {
				t.Fatalf("admitted: %v", k.admitted)
			}
			end(t, c)
			<-kept.done
			if len(k.admitted) != 0 {
				t.Errorf("still admitted: %v", k.admitted)
			}
		})
	}
}

// TestKeepBoundsWork asks faster than the keeper answers.
func TestKeepBoundsWork(t *testing.T) {
	k := &logged{admitted: map[way.Flow]int{}, wait: make(chan struct{})}
	c, _ := conversation(t, k)
	b, err := json.Marshal(ask{ID: 1, Lane: &way.Lane{Index: 3}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for ; sent < 100_000 && err == nil; sent++ {
		_, err = c.Write(b)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d questions were taken, %v; want that the relay has to wait", sent, err)
	}
	close(k.wait)
	in := make([]byte, maxAsk)
	for range sent - 1 {
		if _, err := c.Read(in); err != nil {
			t.Fatalf("read answer: %v", err)
		}
	}
}
