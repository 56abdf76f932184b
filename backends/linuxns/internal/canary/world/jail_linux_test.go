package world

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/escape"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// mutations are one line each that would change the machine. None may be
// refused for want of the tool, so each begins with what must work.
var mutations = []string{
	"ip link set lo mtu 1400", "ip link set eth0 down", "ip link delete eth0", "ip tuntap add dev tapx mode tap",
	"/usr/sbin/ip address add 198.51.100.9/24 dev lo", "ip address flush dev eth0",
	"ip route add 198.51.100.0/24 dev lo", "ip route delete default", "ip route replace default via 192.0.2.99",
	"ip rule add from 192.0.2.0/24 lookup 77", "ip neighbour add 192.0.2.50 lladdr 02:00:00:00:00:01 dev eth0",
	"nft add table inet mutated", "nft flush ruleset", "nft list ruleset >/dev/null && nft add table ip mutated",
	"sysctl -w net.ipv4.ip_forward=1", "echo 1 >/proc/sys/net/ipv4/ip_forward", "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter",
	"echo 1 >/proc/sys/net/ipv4/conf/eth0/forwarding", "sysctl -w kernel.core_pattern=core", "echo core >/proc/sys/kernel/core_pattern",
	"ping -c1 -W1 -I lo 127.0.0.1 && sysctl -w net.ipv4.ping_group_range='0 0'",
	"hostname mutated && test $(hostname) != mutated",
	"mount -t tmpfs none /etc", "mount -o remount,rw /sys", "umount /dev", "umount -l /proc",
	"kill -TERM $OUTSIDE", "kill -0 $OUTSIDE",
	"cat /proc/$OUTSIDE/comm", "ls /proc/1/root$STATE/env",
	"mknod /tmp/disk b 254 0", "date -s 2001-01-01", "echo 1 >/sys/kernel/mm/ksm/run", "echo +pids >/sys/fs/cgroup/cgroup.subtree_control",
	"unshare -n ip link set lo up && unshare -n true && nsenter -t $OUTSIDE -n true",
}

// writes succeed in a world, and nothing of them is left.
var writes = []string{
	"echo mutated >/etc/hosts", "echo mutated >/etc/resolv.conf", "mv /etc/hostname /etc/hostname2", "rm -f /etc/passwd",
	"echo '* * * * * root id' >/etc/cron.d/mutated", "echo x >/usr/local/bin/mutated", "mkdir /mutated", "chmod 600 /etc/group",
	"ln -s /etc /usr/mutated", "echo x >/tmp/mutated", "touch /run/lock/mutated",
}

// fingerprint is everything of the machine's "host" that a canary could change.
func (m *machine) fingerprint() string {
	m.t.Helper()
	var lines []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", m.cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil || unix.Setns(ns, unix.CLONE_NEWNET) != nil {
			m.t.Errorf("enter the machine: %v", err)
			return
		}
		defer unix.Close(ns)
		for line := range strings.SplitSeq(nstest.HostDump(m.t), "\n") {
			// The rest is of the whole machine, where other tests are at work.
			if !strings.HasPrefix(line, "process ") && !strings.HasPrefix(line, "cgroup ") && !strings.HasPrefix(line, "mount ") {
				lines = append(lines, line)
			}
		}
	}()
	<-done
	for _, path := range []string{"/etc", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/passwd", "/etc/cron.d", "/etc/group", "/usr", "/usr/local/bin", "/proc/sys/kernel/core_pattern", "/run/lock"} {
		lines = append(lines, describe(m.t, path))
	}
	filepath.WalkDir(filepath.Join(m.State, "env", "layers"), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			m.t.Error(err)
			return nil
		}
		lines = append(lines, describe(m.t, path))
		return nil
	})
	return strings.Join(lines, "\n")
}

func describe(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Error(err)
	}
	line := fmt.Sprintf("%s %o %d:%d ino %d", path, st.Mode, st.Uid, st.Gid, st.Ino)
	if st.Mode&unix.S_IFMT == unix.S_IFREG && !strings.HasPrefix(path, "/proc") {
		line += fmt.Sprintf(" size %d ctime %d", st.Size, st.Ctim.Nano())
	}
	return line
}

func TestMutationsChangeNothing(t *testing.T) {
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			m := start(t, setup{Mode: mode, Staged: map[string]string{"/etc/canary-staged": "staged"}})
			before := m.fingerprint()
			for _, where := range everywhere {
				for _, uid := range []uint32{0, 1000} {
					if uid != 0 && where != backends.InJail {
						continue // the strongest in the other worlds is enough
					}
					var script strings.Builder
					for i, line := range mutations {
						fmt.Fprintf(&script, "(%s) >/dev/null 2>&1 && echo %d\n", line, i)
					}
					p := as(uid, sh(script.String()))
					p.Env = append(p.Env, fmt.Sprintf("OUTSIDE=%d", m.cmd.Process.Pid), "STATE="+m.State)
					got := m.run(where, p)
					for n := range strings.SplitSeq(strings.TrimSuffix(got.Output, `\x0a`), `\x0a`) {
						var i int
						if _, err := fmt.Sscan(n, &i); err == nil {
							t.Errorf("%s in %s, uid %d: %q succeeded", mode, where, uid, mutations[i])
						}
					}
					if got.TimedOut || got.Err != "" {
						t.Errorf("%s in %s, uid %d: %+v", mode, where, uid, got)
					}
				}
				for _, line := range writes {
					if got := m.run(where, sh(line)); !got.OK() && where != backends.InCandidate {
						t.Errorf("%s in %s: %q: %+v", mode, where, line, got)
					}
				}
			}
			if diff := gocmp.Diff(before, m.fingerprint()); diff != "" {
				t.Errorf("the machine changed (-before +after):\n%s", diff)
			}
		})
	}
}

// Importing a module writes byte code beside it, which must not reach the layer.
func TestPythonImportDoesNotChangeTheLayer(t *testing.T) {
	nstest.Require(t, nstest.Tool("python3"))
	m := start(t, setup{Staged: map[string]string{"/usr/local/lib/canarymodule.py": "answer = 42\n"}})
	before := m.fingerprint()
	p := sh("cd /usr/local/lib && python3 -c 'import canarymodule; print(canarymodule.answer)' && ls __pycache__")
	p.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=")
	got := m.run(backends.InCandidate, p)
	if !got.OK() || !strings.HasPrefix(got.Output, `42\x0a`) || !strings.Contains(got.Output, "canarymodule.") {
		t.Fatalf("the import wrote nothing, so the test says nothing: %+v", got)
	}
	if diff := gocmp.Diff(before, m.fingerprint()); diff != "" {
		t.Errorf("the machine changed (-before +after):\n%s", diff)
	}
}

// The battery for views, as uid 0 of each canary.
func TestEscapeProbesFindNothing(t *testing.T) {
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			m := start(t, setup{Mode: mode})
			f := fixture(t, m)
			arg, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			program := filepath.Join(filepath.Dir(f.Socket), escape.Name)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(self, program); err != nil {
				t.Fatal(err)
			}
			for _, where := range everywhere {
				p := sh(fmt.Sprintf("%s '%s' | grep '\"hole\"'; true", program, arg))
				got := m.run(where, p)
				for line := range strings.SplitSeq(strings.TrimSuffix(got.Output, `\x0a`), `\x0a`) {
					if where == backends.InJail && strings.Contains(line, `"namespaces of the host"`) {
						continue // the network is the host's: that is what a jail is
					}
					if line != "" {
						t.Errorf("%s in %s: %s", mode, where, line)
					}
				}
				if !got.OK() {
					t.Errorf("%s in %s: %+v", mode, where, got)
				}
			}
		})
	}
}

// fixture lays out what the escape probes look for. The abstract socket must be
// one of the machine's network namespace.
func fixture(t *testing.T, m *machine) escape.Fixture {
	t.Helper()
	dir := t.TempDir()
	f := escape.Fixture{
		StateRoot: m.State, Marker: filepath.Join(m.State, "marker"), Secret: "only on the host",
		Socket: filepath.Join(dir, "host.sock"), RunSocket: "/run/netsandbox-none.sock",
		Abstract: filepath.Base(m.State), BlockNode: filepath.Join(dir, "disk"), Namespaces: map[string]string{},
	}
	if err := os.WriteFile(f.Marker, []byte(f.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(f.BlockNode, unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for _, kind := range []string{"mnt", "net", "pid", "ipc", "uts"} {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", m.cmd.Process.Pid, kind))
		if err != nil {
			t.Fatal(err)
		}
		f.Namespaces[kind] = target
	}
	return f
}
