package linuxns

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// modes runs a test in every mode that is used in earnest.
func modes(t *testing.T, f func(t *testing.T, e *env)) {
	for _, m := range []string{"shifted", "caps"} {
		t.Run(m, func(t *testing.T) {
			e := newEnv(t, func(s *backends.Spec) { s.Mode = m })
			if e.made.Mode != m {
				t.Fatalf("made in mode %q", e.made.Mode)
			}
			f(t, e)
		})
	}
}

// Whatever PID 1 holds open is within reach of root inside as /proc/1/fd/N.
func TestInitHoldsNothingOfTheHosts(t *testing.T) {
	modes(t, func(t *testing.T, e *env) {
		init := e.live()
		dir := fmt.Sprintf("/proc/%d/fd", init)
		var fds []os.DirEntry
		until(t, "init has closed the connection of the command that ended", func() bool {
			var err error
			if fds, err = os.ReadDir(dir); err != nil {
				t.Fatal(err)
			}
			return len(fds) == 6
		})
		var got []string
		for _, fd := range fds {
			to, err := os.Readlink(filepath.Join(dir, fd.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, regexp.MustCompile(`:\[\d+\]$`).ReplaceAllString(to, ""))
		}
		slices.Sort(got)
		want := []string{"/dev/null", "/dev/null", "/dev/null", "anon_inode:[eventfd]", "anon_inode:[eventpoll]", "socket"}
		if !slices.Equal(got, want) {
			t.Errorf("descriptors %q, want %q", got, want)
		}
		// Its own null device, not the host's.
		var st, host syscall.Stat_t
		if err := syscall.Stat(dir+"/0", &st); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Stat("/dev/null", &host); err != nil || st.Dev == host.Dev {
			t.Errorf("the null device is the host's (%v)", err)
		}
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", init))
		if err != nil || strings.Contains(string(env), "NSTEST_RUN") {
			t.Errorf("init has the caller's environment: %q, %v", env, err)
		}
	})
}

func TestHostStaysOutOfReach(t *testing.T) {
	nstest.Require(t, nstest.Tool("python3"))
	modes(t, func(t *testing.T, e *env) {
		sock := filepath.Join(base(t), "sock")
		inFile, err := net.Listen("unix", sock)
		if err != nil {
			t.Fatal(err)
		}
		defer inFile.Close()
		abstract, err := net.Listen("unix", "@nsb-"+e.spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer abstract.Close()
		connect := func(addr string) string {
			_, out := e.run("/usr/bin/python3", "-c", "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ntry: s.connect("+addr+"); print('connected')\nexcept OSError as x: print(x.strerror)")
			return strings.TrimSpace(out)
		}
		for name, addr := range map[string]string{
			"a socket of the host in a directory": "'" + sock + "'",
			"an abstract socket of the host":      `'\0nsb-` + e.spec.ID + "'",
			"the holder's control socket":         "'" + filepath.Join(e.spec.Dir, "op.sock") + "'",
		} {
			if got := connect(addr); got != "Connection refused" && got != "Permission denied" && got != "No such file or directory" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if status, out := e.sh("ls -a " + e.spec.StateRoot + " 2>&1; cat " + e.spec.Dir + "/holder.json 2>&1; stat -c %a " + e.spec.StateRoot); strings.Contains(out, "\nenvironments") || strings.Contains(out, "boot_id") || !strings.HasSuffix(out, "555\n") {
			t.Errorf("state directory: status %d, %s", status, out)
		}
		if status, out := e.sh("umount " + e.spec.StateRoot + " 2>&1"); status == 0 {
			t.Errorf("the cover of the state directory came off: %s", out)
		}
	})
}

func TestClientsOfServicesFailClearly(t *testing.T) {
	e := newEnv(t)
	// Whatever the machine has; the view must have at least one of them here.
	tried := 0
	for _, c := range []string{"systemctl restart nginx", "service nginx restart", "docker ps", "nmcli device", "resolvectl status", "busctl list", "firewall-cmd --state"} {
		name := strings.Fields(c)[0]
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		tried++
		status, out := e.sh(c)
		if status == 0 || !strings.HasPrefix(out, "netsandbox: "+name+": services are not available in this view") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: status %d, %q", c, status, out)
		}
	}
	if tried == 0 {
		t.Fatal("this machine has none of the clients")
	}
	d, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(d.Changes, d.Ephemeral) {
		if strings.Contains(string(c.Path), "bin/") {
			t.Errorf("a stand-in shows as a change: %+v", c)
		}
	}
}

// ordinaryWork is what root does on a host and must be able to do inside.
var ordinaryWork = []struct {
	needs  nstest.Req
	caps   bool // also where there is no user namespace
	script string
}{
	{nstest.Tool("sudo"), true, "test $(sudo -n id -u) = 0 && test $(sudo -n -u nobody id -u) = $(id -u nobody)"},
	{nstest.Tool("su"), true, "test $(su nobody -s /bin/sh -c 'id -u') = $(id -u nobody)"},
	{nstest.Tool("useradd"), true, "useradd -m nsb-someone && id nsb-someone && test -d /home/nsb-someone"},
	{nstest.Tool("setcap"), true, "cp /usr/bin/true /srv/nsb-true && setcap cap_net_raw+ep /srv/nsb-true && getcap /srv/nsb-true | grep -q cap_net_raw && /srv/nsb-true"},
	{nstest.Tool("setfattr"), true, "touch /srv/nsb-x && setfattr -n user.k -v v /srv/nsb-x && getfattr -n user.k /srv/nsb-x"},
	{nstest.Tool("nft"), true, "nft add table inet t && nft list ruleset | grep -q 'table inet t'"},
	{nstest.Tool("ip"), true, "ip link add nsb0 type veth peer name nsb1 && ip address add 192.0.2.1/24 dev nsb0 && ip link set nsb0 up"},
	{nstest.Tool("sysctl"), true, "sysctl -qw net.ipv4.ip_forward=1"},
	{nstest.Tool("ping"), true, "ping -c1 -W2 127.0.0.1"},
	{nstest.Tool("dpkg"), true, "dpkg --version >/dev/null && dpkg -s dpkg >/dev/null"},
	{nstest.Tool("ip"), false, "ip netns add q && ip netns exec q ip link set lo up"},
	{nstest.Tool("mount"), false, "mkdir -p /mnt/nsb && mount -t tmpfs none /mnt/nsb && mount --bind /etc /mnt/nsb && umount /mnt/nsb"},
	{nstest.Tool("unshare"), false, "unshare -Ur true"},
	{nstest.Tool("bwrap"), false, "bwrap --bind / / --unshare-all true"},
}

func TestOrdinaryWork(t *testing.T) {
	for _, w := range ordinaryWork {
		nstest.Require(t, w.needs)
	}
	modes(t, func(t *testing.T, e *env) {
		for _, w := range ordinaryWork {
			if e.spec.Mode == "caps" && !w.caps {
				continue
			}
			if status, out := e.sh(w.script); status != 0 {
				t.Errorf("%s: status %d: %s", w.script, status, out)
			}
		}
	})
}

func TestAnotherUser(t *testing.T) {
	// The state is opened to others here, as an administrator may.
	root := t.TempDir()
	for d := root; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	nstest.Require(t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.UserNS, nstest.IDMap)
	e := plainEnv(t, root, func(s *backends.Spec) { s.UID, s.GID = 1000, 1000 })
	for d := e.spec.Dir; d != root; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e.create()
	as := func(uid uint32, groups []uint32, argv ...string) (int, string) {
		var out bytes.Buffer
		c := e.clientCmd(argv...)
		c.Path = copyOfSelf(t, root)
		c.Stdout, c.Stderr = &out, &out
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
		c.Run()
		return c.ProcessState.ExitCode(), out.String()
	}
	dir := base(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Run("runs as itself, with its groups and no capability", func(t *testing.T) {
		status, out := as(1000, []uint32{1000, 27, 100}, "sh", "-c", "id -u; id -g; id -G | tr ' ' '\\n' | sort -n | xargs; grep CapEff /proc/self/status; touch "+dir+"/mine; cat /etc/shadow")
		if status != 1 || !strings.HasPrefix(out, "1000\n1000\n27 100 1000\nCapEff:\t0000000000000000\n") || !strings.Contains(out, "Permission denied") {
			t.Errorf("status %d, %q", status, out)
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(e.upper(dir+"/mine"), &st); err != nil || st.Uid != 1000 || st.Gid != 1000 {
			t.Errorf("its file belongs to %d:%d, %v", st.Uid, st.Gid, err)
		}
	})
	t.Run("opens its pipes again", func(t *testing.T) {
		// Its own: one that belongs to somebody else it cannot give away.
		var out bytes.Buffer
		c := e.clientCmd()
		c.Path, c.Args, c.Stdout = "/bin/bash", []string{"bash", "-c", `(exec -a "$0" "$1" sh -c 'echo again > /dev/stdout') | cat`, clientArgv0, copyOfSelf(t, root)}, &out
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		if err := c.Run(); err != nil || out.String() != "again\n" {
			t.Errorf("%v, %q", err, out.String())
		}
	})
	t.Run("nobody else enters", func(t *testing.T) {
		for _, uid := range []uint32{0, 1001} {
			status, out := as(uid, nil, "true")
			if status != 125 || !strings.Contains(out, "belongs to uid 1000") {
				t.Errorf("uid %d: status %d, %q", uid, status, out)
			}
		}
	})
}

// copyOfSelf is this program where another user can execute it.
func copyOfSelf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(dir, "client")
	if exists(to) {
		return to
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestIdsThatHaveNoPlace(t *testing.T) {
	e := newEnv(t, func(s *backends.Spec) { s.UID = 1<<31 + 4; s.Mode = "shifted" })
	root := e.spec.StateRoot
	for d := e.spec.Dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	c := e.clientCmd("true")
	c.Path, c.Stderr = copyOfSelf(t, root), &out
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1<<31 + 4, Gid: 5}}
	c.Run()
	if c.ProcessState.ExitCode() != 125 || !strings.Contains(out.String(), "cannot be mapped") {
		t.Errorf("%v: %s", c.ProcessState, out.String())
	}
}

func TestLimitsAreTheHosts(t *testing.T) {
	nstest.Require(t, nstest.Cgroup2)
	e := newEnv(t)
	groups := read(t, fmt.Sprintf("/proc/%d/cgroup", e.live()))
	if !strings.Contains(groups, "::/netsandbox/"+e.spec.ID+"/view") {
		t.Errorf("init is in\n%s", groups)
	}
	mounts := read(t, "/proc/self/mountinfo")
	tried := 0
	for controller, files := range map[string][]string{"pids": {"pids.max"}, "memory": {"memory.max", "memory.limit_in_bytes"}} {
		if !regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ \S*/` + controller + ` .* - cgroup `).MatchString(mounts) {
			continue // of cgroup2, and not handed down to us
		}
		tried++
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, "netsandbox", e.spec.ID, "view", f))
			if err != nil {
				continue
			}
			if v := strings.TrimSpace(string(b)); v == "max" || len(v) > 14 {
				t.Errorf("%s is %s", f, v)
			}
			if !strings.Contains(groups, controller+":/netsandbox/"+e.spec.ID+"/view") {
				t.Errorf("init is not under the %s controller:\n%s", controller, groups)
			}
		}
	}
	// Not from inside.
	for _, f := range []string{"memory.max", "pids.max", "cgroup.freeze"} {
		if status, out := e.sh("test ! -e /sys/fs/cgroup/" + f + " || echo 1 > /sys/fs/cgroup/" + f + " 2>/dev/null && test -e /sys/fs/cgroup/" + f); status == 0 {
			t.Errorf("%s can be written inside: %s", f, out)
		}
	}
	// The commands are in a group below, so that controllers can be handed down.
	if out := e.must("cat", "/proc/self/cgroup"); !strings.Contains(out, "0::/commands\n") {
		t.Errorf("a command is in %s", out)
	}
	t.Logf("%d controllers of cgroup v1", tried)
}

// A socket names its peer by a pidfd, which reaches across pid namespaces: root
// inside must get nothing from the client on the host by it.
func TestClientKeepsItsDescriptors(t *testing.T) {
	nstest.Require(t, nstest.Tool("python3"))
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "secret\n")
	modes(t, func(t *testing.T, e *env) {
		f, err := os.Open(secret)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := os.NewFile(uintptr(pair[0]), "mine"), os.NewFile(uintptr(pair[1]), "theirs")
		defer mine.Close()
		defer theirs.Close()
		// 77 is SO_PEERPIDFD, 438 pidfd_getfd; this process is the peer.
		r := request("/usr/bin/python3", "-c", `
import ctypes, os, socket, struct
s = socket.socket(fileno=0)
try:
    pidfd = struct.unpack("i", s.getsockopt(socket.SOL_SOCKET, 77, 4))[0]
except OSError as x:
    print("no pidfd:", x.strerror); raise SystemExit
libc = ctypes.CDLL(None, use_errno=True)
for fd in range(3, 64):
    got = libc.syscall(438, pidfd, fd, 0)
    if got >= 0:
        print("took", fd, os.readlink("/proc/self/fd/%d" % got)); raise SystemExit
    last = ctypes.get_errno()
print("refused:", os.strerror(last))
`)
		r.Stdin = theirs
		_, out := e.exec(r)
		if !strings.HasPrefix(out, "refused: Operation not permitted") && !strings.HasPrefix(out, "no pidfd:") {
			t.Errorf("inside: %s", out)
		}
	})
}
