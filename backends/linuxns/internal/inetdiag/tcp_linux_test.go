package inetdiag

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// More sockets than fit into one buffer, so that the dump comes in parts.
func TestTCPReadsLongTables(t *testing.T) {
	nstest.New(t)
	const n = 700
	want := make([]string, 0, n)
	for i := range n {
		addr := fmt.Sprintf("127.0.%d.%d:7000", i/250, i%250+1)
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		want = append(want, addr)
	}
	socks, err := TCP(Listen)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range socks {
		if s.State != Listen || s.Family != unix.AF_INET || s.Inode == 0 {
			t.Errorf("unexpected %+v", s)
		}
		got = append(got, s.Local.String())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d sockets listed, %d there", len(got), len(want))
	}
	if socks, err = TCP(Established); err != nil || len(socks) != 0 {
		t.Errorf("established: %v, %v", socks, err)
	}
}

func TestTCPTellsV6Only(t *testing.T) {
	nstest.New(t)
	for network, want := range map[string]bool{"tcp": false, "tcp6": true} {
		l, err := net.Listen(network, ":0")
		if err != nil {
			t.Fatal(err)
		}
		socks, err := TCP(Listen)
		if err != nil {
			t.Fatal(err)
		}
		if len(socks) != 1 || socks[0].V6Only != want || socks[0].Family != unix.AF_INET6 {
			t.Errorf("%s: %+v", network, socks)
		}
		l.Close()
	}
}

// The kernel is trusted, but a reader of lengths must not run over the end.
func TestParseRefusesShortMessages(t *testing.T) {
	whole := make([]byte, sizeofMsg+8)
	whole[0] = unix.AF_INET6
	whole[sizeofMsg], whole[sizeofMsg+2], whole[sizeofMsg+4] = 5, attrV6Only, 1
	s, err := parse(whole)
	if err != nil || !s.V6Only {
		t.Fatalf("whole message: %+v, %v", s, err)
	}
	for n := range sizeofMsg {
		if _, err := parse(whole[:n]); err == nil {
			t.Errorf("%d bytes are a message", n)
		}
	}
	whole[sizeofMsg] = 200
	if _, err := parse(whole); err == nil {
		t.Error("an attribute may be longer than its message")
	}
}
