package linuxns

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestNetworkDifferenceBlocks(t *testing.T) {
	nstest.New(t, nstest.Root, nstest.Overlay, nstest.TUN)
	e := newEnv(t)
	e.must("sh", "-c", "ip link add nsb0 type veth peer name nsb1; ip route add 192.0.2.0/24 via 127.0.0.1 dev lo")
	e.must("true") // the network outlives a rebuild, and so does the difference
	d, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Network, func(l string) bool { return strings.HasPrefix(l, "ip link add") && strings.Contains(l, "nsb0") }) {
		t.Errorf("network %q", d.Network)
	}
	for _, what := range []string{"twin-link", "twin-route"} {
		i := slices.IndexFunc(d.Blockers, func(b change.Blocker) bool { return b.What == what })
		if i < 0 {
			t.Errorf("no blocker %s among %+v", what, d.Blockers)
		} else if d.Blockers[i].Fix != "netsandbox reset test --network" {
			t.Errorf("fix %q", d.Blockers[i].Fix)
		}
	}
	if err := e.view().Reset(t.Context(), backends.Reset{Network: true}); err != nil {
		t.Fatal(err)
	}
	if d, err = e.view().Changes(t.Context()); err != nil || len(d.Network) > 0 {
		t.Errorf("after a reset: %q, %v", d.Network, err)
	}
	if out := e.must("ip", "link"); strings.Contains(out, "nsb0") {
		t.Errorf("links after a reset:\n%s", out)
	}
}

// /run is no layer: what is changed there must not go unseen.
func TestResolverInRun(t *testing.T) {
	nstest.NewMount(t, nstest.Root, nstest.Overlay)
	if err := unix.Mount("run", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	const file = "/run/systemd/resolve/stub-resolv.conf"
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, file, "nameserver 127.0.0.53\n")
	e := newEnv(t)
	if out := e.must("cat", file); out != "nameserver 127.0.0.53\n" {
		t.Fatalf("the view has %q", out)
	}
	blocked := func() []string {
		t.Helper()
		d, err := e.view().Changes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, b := range d.Blockers {
			out = append(out, b.What+" "+b.Subject)
		}
		return out
	}
	if got := blocked(); len(got) > 0 {
		t.Errorf("before a change: %q", got)
	}
	e.must("sh", "-c", "echo nameserver 192.0.2.53 > "+file)
	for range 2 { // and after a rebuild
		if got := blocked(); !slices.Equal(got, []string{"dns " + file}) {
			t.Errorf("after a change: %q", got)
		}
		if out := e.must("cat", file); out != "nameserver 192.0.2.53\n" {
			t.Errorf("the view has %q", out)
		}
	}
	if read(t, file) != "nameserver 127.0.0.53\n" {
		t.Error("written through")
	}
	e.must("sh", "-c", "rm "+file+"; ln -s /etc/passwd "+file)
	if got := blocked(); len(got) != 1 {
		t.Errorf("a symlink in its place: %q", got)
	}
	if err := e.view().Reset(t.Context(), backends.Reset{Network: true}); err != nil {
		t.Fatal(err)
	}
	if out := e.must("cat", file); out != "nameserver 127.0.0.53\n" || len(blocked()) > 0 {
		t.Errorf("after a reset: %q", out)
	}
}

func TestRelay(t *testing.T) {
	nstest.New(t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.NFT)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "from the host\n")
			c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	e := newEnv(t)
	ask := func() (int, string) {
		return e.run("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/"+itoa(port)+" && cat <&3")
	}
	if status, out := ask(); status == 0 {
		t.Errorf("reached without being asked for: %q", out)
	}
	if err := e.view().Relay(t.Context(), uint16(port)); err != nil {
		t.Fatal(err)
	}
	if status, out := ask(); status != 0 || out != "from the host\n" {
		t.Errorf("status %d, %q", status, out)
	}
}

func TestStateDirectoryThroughASymlink(t *testing.T) {
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	nstest.Require(t, nstest.Root, nstest.Overlay)
	e := plainEnv(t, link)
	e.create()
	unix.Kill(e.status().Holder, unix.SIGKILL) // the next one is started from the spec alone
	if _, out := e.sh("ls " + real + " " + link); strings.Contains(out, "environments\n") {
		t.Errorf("the state directory shows: %s", out)
	}
}
