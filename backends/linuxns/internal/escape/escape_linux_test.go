package escape

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Name {
		Main()
		return
	}
	linuxns.Main() // this binary is also the holder and PID 1 of views
	nstest.Main(m)
}

// layOut makes what the probes look for, in directories of the test.
func layOut(t *testing.T) Fixture {
	t.Helper()
	dir := t.TempDir()
	f := Fixture{
		StateRoot: filepath.Join(dir, "state"), Secret: "only on the host",
		Socket: filepath.Join(dir, "host.sock"), RunSocket: "/run/" + strings.ReplaceAll(dir[1:], "/", "-") + ".sock",
		Abstract: filepath.Base(dir), BlockNode: filepath.Join(dir, "disk"),
		Namespaces: map[string]string{},
	}
	f.Marker = filepath.Join(f.StateRoot, "marker")
	if err := os.Mkdir(f.StateRoot, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Marker, []byte(f.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(f.BlockNode, unix.S_IFBLK|0o600, int(disk())); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{f.Socket, f.RunSocket, "@" + f.Abstract} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	for _, kind := range []string{"mnt", "net", "pid", "ipc", "uts"} {
		target, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		f.Namespaces[kind] = target
	}
	return f
}

// Bare namespaces are what a sandbox is without hardening. A battery that
// finds little there would prove nothing by finding nothing in a view.
func TestProbesFindHolesInBareNamespaces(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS)
	f := layOut(t)
	arg, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("/proc/" + corePattern)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, string(arg))
	c.Args[0] = Name
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Unshareflags: unix.CLONE_NEWNS,
	}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("probes: %v\n%s", err, out)
	}
	results := decode(t, out)
	if n := len(holes(results)); n < 20 {
		t.Errorf("%d holes found in bare namespaces, want at least 20", n)
	}
	after, err := os.ReadFile("/proc/" + corePattern)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Errorf("core_pattern was %q and is %q", before, after)
	}
}

func decode(t *testing.T, out []byte) []Result {
	t.Helper()
	var results []Result
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var r Result
		if err := d.Decode(&r); err != nil {
			t.Fatalf("decode %q: %v", out, err)
		}
		results = append(results, r)
		t.Logf("%-55s %-8s %s", r.Name, r.Verdict, r.Detail)
	}
	return results
}

func holes(results []Result) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Verdict != Hole })
}
