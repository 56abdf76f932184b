package nstest_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func link(t *testing.T, path string) string {
	t.Helper()
	id, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestNewIsApartFromTheMachine(t *testing.T) {
	nstest.New(t)
	for _, kind := range []string{"net", "mnt"} {
		if link(t, "/proc/thread-self/ns/"+kind) == link(t, "/proc/self/ns/"+kind) {
			t.Errorf("%s namespace is the machine's", kind)
		}
	}
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if len(ifs) != 1 || ifs[0].Name != "lo" || ifs[0].Flags&net.FlagUp == 0 {
		t.Errorf("interfaces %v, want loopback alone and up", ifs)
	}
	names, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 1 {
		t.Errorf("/sys/class/net shows %d links, want 1", len(names))
	}
}

func TestNewMountKeepsTheNetwork(t *testing.T) {
	nstest.NewMount(t)
	if link(t, "/proc/thread-self/ns/net") != link(t, "/proc/self/ns/net") {
		t.Error("the network namespace changed")
	}
	if link(t, "/proc/thread-self/ns/mnt") == link(t, "/proc/self/ns/mnt") {
		t.Error("the mount namespace is the machine's")
	}
}

func TestGoAndRunShareTheNamespaces(t *testing.T) {
	ns := nstest.New(t)
	want := link(t, "/proc/thread-self/ns/net")
	got := make(chan string, 1)
	ns.Go(func() {
		id, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			id = err.Error()
		}
		got <- id
	})
	if id := <-got; id != want {
		t.Errorf("Go ran in %s, want %s", id, want)
	}
	ns.Run(t, "subtest", func(t *testing.T) {
		if id := link(t, "/proc/thread-self/ns/net"); id != want {
			t.Errorf("Run ran in %s, want %s", id, want)
		}
	})
}

func TestChildrenInherit(t *testing.T) {
	nstest.New(t)
	out, err := exec.Command("readlink", "/proc/self/ns/net").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.TrimSpace(string(out)), link(t, "/proc/thread-self/ns/net"); got != want {
		t.Errorf("child in %s, want %s", got, want)
	}
}

// A test that leaves a bind mount in its temporary directory must not lose what
// is mounted there.
func TestMountsGoBeforeTempDirs(t *testing.T) {
	nstest.Require(t, nstest.Root)
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var dir string
	t.Run("inner", func(t *testing.T) {
		nstest.NewMount(t)
		dir = t.TempDir()
		point := filepath.Join(dir, "with space")
		if err := os.Mkdir(point, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(precious, point, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("what was mounted is lost: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the temporary directory is still there: %v", err)
	}
}

// Two places in one test: each is cleaned up in itself.
func TestSecondPlaceInOneTest(t *testing.T) {
	nstest.Require(t, nstest.Root)
	t.Cleanup(func() { // runs last, on the same thread
		if _, err := os.Stat("/proc/self"); err != nil {
			t.Errorf("more was unmounted than the test had mounted: %v", err)
		}
	})
	for range 2 {
		nstest.NewMount(t)
		must(t, unix.Mount("tmpfs", t.TempDir(), "tmpfs", 0, "size=4k"))
	}
}

// TestOutlivingProcess is run in a child: its test leaves a process behind.
func TestOutlivingProcess(t *testing.T) {
	if os.Getenv("NSTEST_OUTLIVE") == "" {
		return
	}
	nstest.New(t)
	if err := exec.Command("sleep", "600").Start(); err != nil {
		t.Fatal(err)
	}
}

func TestOutlivingProcessIsNamedAndEnded(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS)
	cmd := exec.Command(os.Args[0], "-test.run=^TestOutlivingProcess$")
	cmd.Env = append(os.Environ(), "NSTEST_OUTLIVE=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "(sleep) outlived the test") {
		t.Errorf("the process was not named (%v):\n%s", err, out)
	}
}

func TestEveryProbeAgreesWithARealUse(t *testing.T) {
	for _, r := range []nstest.Req{
		nstest.Root, nstest.NetNS, nstest.Overlay, nstest.TUN, nstest.NFT,
		nstest.UserNS, nstest.IDMap, nstest.Landlock, nstest.Cgroup2, nstest.Tool("sh"),
	} {
		if err := r.Check(); err != nil {
			nstest.Require(t, r) // skips or fails, by name
		}
	}
}

func TestHostDumpShowsEveryKindOfChange(t *testing.T) {
	nstest.New(t, nstest.NFT)
	before := nstest.HostDump(t)
	if again := nstest.HostDump(t); again != before {
		t.Fatalf("two dumps of an untouched namespace differ: %v", nstest.Difference(before, again))
	}
	veth := netlink.NewVeth(netlink.NewLinkAttrs())
	veth.Name, veth.PeerName = "nst0", "nst1"
	must(t, netlink.LinkAdd(veth))
	must(t, netlink.LinkSetUp(veth))
	addr, err := netlink.ParseAddr("192.0.2.1/24")
	must(t, err)
	must(t, netlink.AddrAdd(veth, addr))
	_, dst, err := net.ParseCIDR("198.51.100.0/24")
	must(t, err)
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: veth.Index, Dst: dst, Table: 4711}))
	rule := netlink.NewRule()
	rule.Table, rule.Mark = 4711, 77
	must(t, netlink.RuleAdd(rule))
	c, err := nftables.New()
	must(t, err)
	c.AddTable(&nftables.Table{Name: "nst", Family: nftables.TableFamilyINet})
	must(t, c.Flush())
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
	must(t, unix.Mount("tmpfs", t.TempDir(), "tmpfs", 0, "size=4k"))

	diff := strings.Join(nstest.Difference(before, nstest.HostDump(t)), "\n")
	for _, want := range []string{
		"nst0 type veth", "addr=192.0.2.1", "dst=198.51.100.0", "+ rule", "nst",
		"+ sysctl net/ipv4/ip_forward = 1", "+ mount /",
	} {
		if !strings.Contains(diff, want) {
			t.Errorf("difference lacks %q:\n%s", want, diff)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
