package linuxns

import (
	"cmp"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// pair is both ends of one connection.
type pair struct{ client, server *net.TCPConn }

// connect makes a connection to a fresh listener; all three stay open until
// the test ends.
func connect(t *testing.T, network, listen, dial, iface string) pair {
	t.Helper()
	l, err := net.Listen(network, listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if iface != "" {
			c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), iface) })
		}
		return err
	}}
	c, err := d.Dial("tcp", net.JoinHostPort(dial, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return pair{c.(*net.TCPConn), s.(*net.TCPConn)}
}

// newLink makes eth9 with an address. It can be dialled only when the kernel has
// made a local route of it, which it does later, in a work queue, also where it
// looks for no duplicate.
func newLink(t *testing.T, addr string) {
	t.Helper()
	run(t, "ip", "tuntap", "add", "dev", "eth9", "mode", "tap")
	run(t, "ip", "addr", "add", addr+"/64", "dev", "eth9", "nodad")
	run(t, "ip", "link", "set", "eth9", "up")
	until(t, addr+" is local", func() bool {
		return strings.Contains(run(t, "ip", "-6", "route", "show", "table", "local"), "local "+addr+" ")
	})
}

func TestConnectionsOfBothFamilies(t *testing.T) {
	nstest.New(t, nstest.TUN, nstest.Tool("ip"))
	newLink(t, "2001:db8::7")
	run(t, "ip", "addr", "add", "192.0.2.7/24", "dev", "eth9")

	self := backends.Connection{PID: os.Getpid(), Comm: processName(os.Getpid())}
	var want []backends.Connection
	for _, tt := range []struct{ network, listen, dial, iface string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1", ""},
		{"tcp6", "[::1]:0", "::1", ""},
		{"tcp", ":0", "192.0.2.7", ""}, // dual stack: the accepted end is an IPv4-mapped IPv6 socket
		{"tcp4", ":0", "127.0.0.1", "lo"},
		{"tcp6", "[2001:db8::7]:0", "2001:db8::7", ""},
	} {
		p := connect(t, tt.network, tt.listen, tt.dial, tt.iface)
		out, in := self, self
		out.Local, out.Remote = p.client.LocalAddr().String(), p.client.RemoteAddr().String()
		out.Direction, out.Interface = "outbound", tt.iface
		in.Local, in.Remote, in.Direction = out.Remote, out.Local, "inbound"
		want = append(want, out, in)
	}
	got, err := Connections{}.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byLocal := func(a, b backends.Connection) int { return cmp.Compare(a.Local, b.Local) }
	slices.SortFunc(want, byLocal)
	slices.SortFunc(got, byLocal)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("connections (-want +got):\n%s", diff)
	}
}

func TestConnectionsNameTheOwner(t *testing.T) {
	nstest.New(t, nstest.TUN, nstest.Tool("ip"))
	p := connect(t, "tcp4", "127.0.0.1:0", "127.0.0.1", "")
	f, err := p.client.File()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Chown(1234, -1); err != nil { // sockfs passes it on to the uid of the socket
		t.Fatal(err)
	}
	child := exec.Command("sleep", "60")
	child.ExtraFiles = []*os.File{f}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill(); child.Wait() })
	local := p.client.LocalAddr().String()
	f.Close()
	p.client.Close() // from here only the child has it open

	want := backends.Connection{
		Local: local, Remote: p.server.LocalAddr().String(), Direction: "outbound",
		PID: child.Process.Pid, Comm: "sleep", UID: 1234,
	}
	got, err := Connections{}.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(got, func(c backends.Connection) bool { return c.Local == local })
	if i < 0 {
		t.Fatalf("connection from %s is not listed: %v", local, got)
	}
	if diff := gocmp.Diff(want, got[i]); diff != "" {
		t.Errorf("connection (-want +got):\n%s", diff)
	}
}

// A connection that waits in the accept queue has no inode, hence no process,
// but it is established and inbound.
func TestConnectionsNotYetAccepted(t *testing.T) {
	nstest.New(t, nstest.TUN, nstest.Tool("ip"))
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := Connections{}.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := backends.Connection{Local: l.Addr().String(), Remote: c.LocalAddr().String(), Direction: "inbound"}
	if !slices.Contains(got, want) {
		t.Errorf("no %+v in %+v", want, got)
	}
}

func TestConnectionsLinkLocalHasZone(t *testing.T) {
	nstest.New(t, nstest.TUN, nstest.Tool("ip"))
	newLink(t, "fe80::7")
	p := connect(t, "tcp6", "[fe80::7%eth9]:0", "fe80::7%eth9", "")
	got, err := Connections{}.Connections(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	local := p.client.LocalAddr().String()
	if !slices.ContainsFunc(got, func(c backends.Connection) bool { return c.Local == local }) {
		t.Errorf("no connection from %s in %+v", local, got)
	}
}
