package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// uplinks is the network around a script's host:
//
//	host eth0 192.0.2.2/24    2001:db8:1::2/64 --+-- gw1 .1 ::1 ------+
//	                                             +-- gw3 .254 ::fe ---+-- server 203.0.113.80
//	     eth1 198.51.100.2/24 2001:db8:2::2/64 ----- gw2 .1 ::1 ------+          2001:db8:80::80
//
// What is sent to 10.99.0.0/16 ends at the server, which does not forward: nobody
// answers. No gateway translates addresses. The server has a link to each, named after
// it, with listeners bound to that link, so that its answers name the gateway
// that a packet came by, whatever the packet says of itself.
type uplinks struct{ host, lan, gw1, gw2, gw3, server *node }

// uplinksCmd gives the script's host two uplinks: `uplinks`. It wants `host`
// before it. The host uses gw1; nothing of it goes by gw2 and gw3.
func uplinksCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: uplinks")
	}
	t := ts.Value(keyT).(testing.TB)
	u := ts.Value(keyUplinks).(*uplinks)
	*u = uplinks{lan: newNode(t), gw1: newNode(t), gw2: newNode(t), gw3: newNode(t), server: newNode(t)}
	self, err := os.Open("/proc/thread-self/ns/net")
	ts.Check(err)
	u.host = &node{self}
	ts.Check(errors.Join(u.wire(), self.Close()))
	ts.Check(u.serve())
	ts.Check(linksUp(t, u.gw1, u.gw2, u.gw3, u.server))
}

// atCmd runs a command on another machine of the lab: `at gw1 nft list ruleset`.
func atCmd(ts *testscript.TestScript, neg bool, args []string) {
	u := ts.Value(keyUplinks).(*uplinks)
	nodes := map[string]*node{"lan": u.lan, "gw1": u.gw1, "gw2": u.gw2, "gw3": u.gw3, "server": u.server}
	if neg || len(args) < 2 || nodes[args[0]] == nil {
		ts.Fatalf("usage: at lan|gw1|gw2|gw3|server COMMAND ARG...")
	}
	// The script's goroutine has its thread to itself, and comes back to its host.
	back, err := os.Open("/proc/thread-self/ns/net")
	ts.Check(err)
	defer back.Close()
	ts.Check(unix.Setns(int(nodes[args[0]].ns.Fd()), unix.CLONE_NEWNET))
	err = ts.Exec(args[1], args[2:]...)
	ts.Check(errors.Join(err, unix.Setns(int(back.Fd()), unix.CLONE_NEWNET)))
}

func (u *uplinks) wire() error {
	for _, n := range []*node{u.server, u.gw1, u.gw2, u.gw3} {
		// The way back need not be the way there.
		if err := n.sysctl("ipv4/conf/all/rp_filter=0", "ipv4/conf/default/rp_filter=0"); err != nil {
			return err
		}
	}
	for _, n := range []*node{u.gw1, u.gw2, u.gw3} {
		if err := n.sysctl("ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1"); err != nil {
			return err
		}
	}
	cable := func(a, b *node, aLink, bLink string) error {
		return errors.Join(
			a.ip(fmt.Sprintf("link add %s type veth peer name %s netns %s", aLink, bLink, b.path()), "link set "+aLink+" up"),
			b.ip("link set "+bLink+" up"),
		)
	}
	return errors.Join(
		u.host.sysctl("ipv6/conf/all/accept_dad=0", "ipv6/conf/default/accept_dad=0", "ipv4/ip_forward=0", "ipv4/conf/all/rp_filter=1", "ipv4/conf/default/rp_filter=1"),
		cable(u.host, u.lan, "eth0", "host"), cable(u.lan, u.gw1, "one", "in"), cable(u.lan, u.gw3, "three", "in"),
		cable(u.host, u.gw2, "eth1", "in"),
		cable(u.gw1, u.server, "out", "gw1"), cable(u.gw2, u.server, "out", "gw2"), cable(u.gw3, u.server, "out", "gw3"),
		u.lan.ip("link add name sw type bridge", "link set sw up", "link set host master sw", "link set one master sw", "link set three master sw"),
		u.address(),
	)
}

// address gives everybody addresses and routes. A socket that is bound to a link
// looks for routes of that link only, which is why the server has three.
func (u *uplinks) address() error {
	return errors.Join(
		u.host.ip(
			"addr add 192.0.2.2/24 dev eth0", "addr add 2001:db8:1::2/64 dev eth0 nodad",
			"addr add 198.51.100.2/24 dev eth1", "addr add 2001:db8:2::2/64 dev eth1 nodad",
			"route add default via 192.0.2.1", "route add default via 2001:db8:1::1",
		),
		u.gw1.ip(
			"addr add 192.0.2.1/24 dev in", "addr add 2001:db8:1::1/64 dev in nodad",
			"addr add 203.0.113.1/24 dev out", "addr add 2001:db8:80::1/64 dev out nodad",
			"route add 10.99.0.0/16 via 203.0.113.80",
		),
		u.gw2.ip(
			"addr add 198.51.100.1/24 dev in", "addr add 2001:db8:2::1/64 dev in nodad",
			"addr add 10.2.0.1/24 dev out", "addr add 2001:db8:82::1/64 dev out nodad",
			"route add 203.0.113.0/24 via 10.2.0.80", "route add 2001:db8:80::/64 via 2001:db8:82::80",
		),
		u.gw3.ip(
			"addr add 192.0.2.254/24 dev in", "addr add 2001:db8:1::fe/64 dev in nodad",
			"addr add 10.3.0.1/24 dev out", "addr add 2001:db8:83::1/64 dev out nodad",
			"route add 203.0.113.0/24 via 10.3.0.80", "route add 2001:db8:80::/64 via 2001:db8:83::80",
		),
		u.server.ip(
			"addr add 203.0.113.80/24 dev gw1", "addr add 2001:db8:80::80/64 dev gw1 nodad",
			"addr add 10.2.0.80/24 dev gw2", "addr add 2001:db8:82::80/64 dev gw2 nodad",
			"addr add 10.3.0.80/24 dev gw3", "addr add 2001:db8:83::80/64 dev gw3 nodad",
			"route add default via 203.0.113.1 metric 1", "route add default via 2001:db8:80::1 metric 1",
			"route add default via 10.2.0.1 metric 2", "route add default via 2001:db8:82::1 metric 2",
			"route add default via 10.3.0.1 metric 3", "route add default via 2001:db8:83::1 metric 3",
		),
	)
}

// serve starts the server's services on each of its links: HTTP on port 80 says
// "gw1 192.0.2.2", the gateway and the client, and more when asked for; port 7 echoes streams, and answers
// datagrams as port 80 does.
func (u *uplinks) serve() error {
	for _, gw := range []string{"gw1", "gw2", "gw3"} {
		web, err := listenOn(u.server, gw, ":80")
		if err != nil {
			return err
		}
		s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, gw, hostOf(r.RemoteAddr))
			n, _ := strconv.Atoi(r.URL.Query().Get("more")) // so many bytes on top
			io.CopyN(w, rand.Reader, int64(n))
		})}
		go s.Serve(web)
		echo, err := listenOn(u.server, gw, ":7")
		if err != nil {
			return err
		}
		go eachConn(echo, func(c net.Conn) { io.Copy(c, c) })
		// By address: an unbound socket would answer from the link's own.
		for _, addr := range []string{"203.0.113.80:7", "[2001:db8:80::80]:7"} {
			var udp net.PacketConn
			err = u.server.do(func() (err error) {
				udp, err = onLink(gw).ListenPacket(context.Background(), "udp", addr)
				return err
			})
			if err != nil {
				return err
			}
			go eachPacket(udp, func(_ []byte, from net.Addr) []byte { return fmt.Appendln(nil, gw, hostOf(from.String())) })
		}
	}
	return nil
}

// listenOn listens for streams that come in by one link of a node.
func listenOn(n *node, link, addr string) (ln net.Listener, err error) {
	err = n.do(func() (err error) {
		ln, err = onLink(link).Listen(context.Background(), "tcp", addr)
		return err
	})
	return ln, err
}

// onLink binds what it opens to a link.
func onLink(name string) *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		return cmp.Or(rc.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), name) }), err)
	}}
}

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return strings.TrimPrefix(host, "::ffff:")
}

// eachConn serves connections until the listener ends.
func eachConn(ln net.Listener, serve func(net.Conn)) error {
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// eachPacket answers datagrams until the socket ends.
func eachPacket(c net.PacketConn, answer func(b []byte, from net.Addr) []byte) error {
	b := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(answer(b[:n], from), from); err != nil {
			return err
		}
	}
}

// withinCmd runs a command and wants its exact exit status in time: `within 5s 0
// netsandbox exec e -- true`.
func withinCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: within DURATION STATUS COMMAND ARG...")
	}
	most, err := time.ParseDuration(args[0])
	ts.Check(err)
	start := time.Now()
	exitsCmd(ts, false, args[1:])
	if took := time.Since(start); took > most {
		ts.Fatalf("took %s", took)
	}
}
