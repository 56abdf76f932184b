package nettwin

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/conntrack"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// proxyUID is whom the host's nat leaves alone: the transparent proxy.
const proxyUID = 990

// dialAs connects from a node with sockets of another user. The owner that a
// firewall sees is the file system user of the thread that made the socket.
func dialAs(n *netlab.Node, uid int, network, addr string) (c net.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	err = n.Do(func() (err error) {
		if _, err := unix.SetfsuidRetUid(uid); err != nil {
			return err
		}
		defer unix.SetfsuidRetUid(0)
		c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// transparentProxy is one like redsocks: it learns from its own kernel where each
// stream was sent, says so, and carries it there as its user.
func transparentProxy(t *testing.T, n *netlab.Node, addr, word string, original func(*net.TCPConn) (netip.AddrPort, error)) net.Listener {
	t.Helper()
	ln, err := n.Listen("tcp", addr)
	must(t, err)
	serveProxy(t, n, ln, word, original)
	return ln
}

func serveProxy(t *testing.T, n *netlab.Node, ln net.Listener, word string, original func(*net.TCPConn) (netip.AddrPort, error)) {
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				to, err := original(c.(*net.TCPConn))
				if err != nil {
					return
				}
				out, err := dialAs(n, proxyUID, "tcp", to.String())
				if err != nil {
					return
				}
				defer out.Close()
				io.WriteString(c, word+" "+to.String()+"\n")
				go io.Copy(out, c)
				io.Copy(c, out)
			}()
		}
	}()
}

// byNAT asks the kernel as a proxy does that gets its streams by REDIRECT or DNAT
// (SO_ORIGINAL_DST, and IP6T_SO_ORIGINAL_DST with the same number).
func byNAT(c *net.TCPConn) (to netip.AddrPort, err error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	cerr := rc.Control(func(fd uintptr) {
		if c.LocalAddr().(*net.TCPAddr).IP.To4() == nil {
			var v *unix.IPv6MTUInfo
			if v, err = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); err == nil {
				port := binary.NativeEndian.AppendUint16(nil, v.Addr.Port)
				to = netip.AddrPortFrom(netip.AddrFrom16(v.Addr.Addr), binary.BigEndian.Uint16(port))
			}
			return
		}
		var v *unix.IPv6Mreq
		if v, err = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); err == nil {
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(v.Multiaddr[4:8])), binary.BigEndian.Uint16(v.Multiaddr[2:]))
		}
	})
	return to, errors.Join(cerr, err)
}

// fetch connects from inside and returns the first line that comes.
func (l *testLab) fetch(addr string) (string, error) { return fetchFrom(l.inside, 0, addr) }

// fetchFrom does so from a node, as a user.
func fetchFrom(n *netlab.Node, uid int, addr string) (string, error) {
	c, err := dialAs(n, uid, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(3 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// redirectLab is a lab whose host sends its streams through a transparent proxy,
// by rules that the test gives, with somebody who tells the relay what the host's
// nat does.
func redirectLab(t *testing.T, ruleset string) *testLab {
	t.Helper()
	l := newLab(t, nstest.NFT, nstest.Tool("nft"))
	greet(t, l.server, ":443", "server\n")
	load(t, l.host, ruleset)
	return l
}

// load has nft read a ruleset.
func load(t *testing.T, n *netlab.Node, ruleset string) {
	t.Helper()
	_, err := n.Run(t.Context(), "nft", strings.ReplaceAll(ruleset, "\n", " "))
	must(t, err)
}

// natTeller is a keeper that makes no ways and says what the host's nat does.
type natTeller struct{ c *conntrack.Conn }

func newNATTeller(t *testing.T, host *netlab.Node) way.Keeper {
	t.Helper()
	c, err := conntrack.Dial(int(host.NS().Fd()))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return natTeller{c}
}

func (natTeller) Lane(way.Lane) (uint32, error) {
	return 0, &way.Limit{Kind: way.Route, Subject: "lane", Reason: "this host goes no other way"}
}

func (natTeller) Admit(way.Flow) error { return nil }
func (natTeller) Release(way.Flow)     {}

func (k natTeller) Translated(f way.Flow) (netip.AddrPort, error) {
	_, to, err := k.c.Translated(f.Proto, f.Src, f.Dst)
	if err != nil || to == f.Dst {
		return netip.AddrPort{}, nil
	}
	return to, nil
}

var _ way.Keeper = natTeller{}

// wantLimit expects that exactly one limit of a kind was met since the mark, and
// returns the next mark.
func (l *testLab) wantLimit(t *testing.T, since uint64, kind way.Kind, subject string) uint64 {
	t.Helper()
	ls, next, err := l.twin.Limits(since)
	must(t, err)
	if len(ls) != 1 || ls[0].Kind != kind || ls[0].Subject != subject {
		t.Errorf("limits %+v, want one of kind %s about %s", ls, kind, subject)
	}
	return next
}

// wantNoLimit expects that none was met at all.
func (l *testLab) wantNoLimit(t *testing.T) {
	t.Helper()
	ls, _, err := l.twin.Limits(0)
	must(t, err)
	if len(ls) != 0 {
		t.Errorf("limits %+v, want none", ls)
	}
}
