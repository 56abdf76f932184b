package escape

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// usable are things an administrator does, each with how to see that it really
// happened. A sandbox in which they fail is one that nobody rehearses in.
var usable = []struct{ name, script string }{
	{"sudo as root", "test $(sudo -n id -u) = 0"},
	{"sudo as somebody", "test $(sudo -n -u nobody id -un) = nobody"},
	{"su", `test "$(su -s /bin/sh nobody -c 'id -un')" = nobody`},
	{"package installation", `mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/netsandbox-test &&
		printf 'Package: netsandbox-test\nVersion: 1\nArchitecture: all\nMaintainer: t <t@example.org>\nDescription: t\n' >/tmp/p/DEBIAN/control &&
		echo hello >/tmp/p/usr/share/netsandbox-test/file && dpkg-deb --root-owner-group -b /tmp/p /tmp/p.deb >/dev/null &&
		dpkg -i /tmp/p.deb >/dev/null && grep -q hello /usr/share/netsandbox-test/file`},
	{"file capabilities", "cp /bin/cat /usr/local/bin/netsandbox-cat && setcap cap_net_raw+ep /usr/local/bin/netsandbox-cat && getcap /usr/local/bin/netsandbox-cat | grep -q cap_net_raw=ep"},
	{"file capabilities give power", "su -s /bin/sh nobody -c 'netsandbox-cat /proc/self/status' | grep CapEff | grep -q 2000"},
	{"setuid bit", "cp /usr/bin/id /usr/local/bin/netsandbox-id && chmod 4755 /usr/local/bin/netsandbox-id && test $(su -s /bin/sh nobody -c '/usr/local/bin/netsandbox-id -u') = 0"},
	{"owner", "echo x >/etc/netsandbox-owned && chown 33:42 /etc/netsandbox-owned && chmod 2640 /etc/netsandbox-owned && test $(stat -c %u:%g:%a /etc/netsandbox-owned) = 33:42:2640"},
	{"access list", "echo x >/etc/netsandbox-acl && setfacl -m u:1234:rw /etc/netsandbox-acl && getfacl -n /etc/netsandbox-acl 2>/dev/null | grep -q user:1234:rw-"},
	{"user attribute", "setfattr -n user.note -v text /etc/netsandbox-acl && getfattr --only-values -n user.note /etc/netsandbox-acl 2>/dev/null | grep -q text"},
	{"deletion", "rm /etc/hostname && test ! -e /etc/hostname"},
	{"nft", "nft add table inet netsandbox_test && nft add chain inet netsandbox_test c '{ type filter hook input priority 0; }' && nft add rule inet netsandbox_test c tcp dport 80 counter drop && nft list ruleset | grep -q 'dport 80'"},
	{"nft address translation", "nft add table ip netsandbox_nat && nft add chain ip netsandbox_nat o '{ type nat hook output priority -100; }' && nft add rule ip netsandbox_nat o tcp dport 81 redirect to :8081"},
	{"network namespaces", "ip netns add netsandbox-ns && ip netns exec netsandbox-ns ip link set lo up && ip netns del netsandbox-ns"},
	{"tun device", "ip tuntap add dev nst0 mode tun && ip link set nst0 up && ip addr add 10.9.9.1/24 dev nst0 && ip route add 10.8.0.0/16 via 10.9.9.2 && ip route show | grep -q 10.8.0.0/16"},
	{"policy routing", "ip rule add pref 100 fwmark 7 table 77 && ip rule show | grep -q 'lookup 77'"},
	{"network settings", "sysctl -qw net.ipv4.conf.all.forwarding=1 && test $(cat /proc/sys/net/ipv4/conf/all/forwarding) = 1"},
	{"mount of a tmpfs", "mkdir -p /mnt/a && mount -t tmpfs none /mnt/a && touch /mnt/a/x && umount /mnt/a && test ! -e /mnt/a/x"},
	{"bind mount", "mkdir -p /mnt/b && mount --bind /etc /mnt/b && test -e /mnt/b/passwd && umount /mnt/b"},
	{"ping as root", "ping -c1 -W2 127.0.0.1 >/dev/null"},
	{"ping as somebody", "su -s /bin/sh nobody -c 'ping -c1 -W2 127.0.0.1' >/dev/null"},
	{"user namespace", "unshare -Ur id -u | grep -qx 0"},
	{"nested sandbox", "bwrap --dev-bind / / --unshare-net true"},
	{"new account", "useradd netsandboxtest && id netsandboxtest >/dev/null"},
	{"host name", "hostname elsewhere && test $(hostname) = elsewhere"},
}

func TestShiftedViewIsUsable(t *testing.T) {
	nstest.Require(t, nstest.NFT)
	for _, tool := range []string{"sudo", "su", "dpkg-deb", "setcap", "setfacl", "setfattr", "nft", "ip", "sysctl", "ping", "bwrap", "useradd"} {
		nstest.Require(t, nstest.Tool(tool))
	}
	stateRoot := t.TempDir()
	v := newView(t, stateRoot, "shifted")
	before := hostLooks(t)
	// A process that stays keeps the view from being built anew between commands.
	if status, _ := v.exec("sh", "-c", "sleep 600 >/dev/null 2>&1 &"); status != 0 {
		t.Fatal("cannot start a daemon")
	}
	for _, u := range usable {
		if status, out := v.exec("sh", "-c", u.script); status != 0 {
			t.Errorf("%s: status %d\n%s", u.name, status, out)
		}
	}
	if after := hostLooks(t); after != before {
		t.Errorf("the host was %s and is %s", before, after)
	}
	upperIsPlain(t, filepath.Join(v.spec.Dir, "layers", "root", "upper"))
}

// hostLooks is what of the host the table would have changed.
func hostLooks(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	for _, path := range []string{"/etc/hostname", "/etc/passwd"} {
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		name += fmt.Sprintf(" %d", st.Ctim.Nano())
	}
	return name
}

// upperIsPlain reads the upper as apply would: with the host's own ids, bits,
// capabilities and lists, and nothing to translate.
func upperIsPlain(t *testing.T, upper string) {
	t.Helper()
	stat := func(path string) (st unix.Stat_t) {
		if err := unix.Lstat(upper+path, &st); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return st
	}
	attr := func(path, name string) string {
		b := make([]byte, 256)
		n, err := unix.Lgetxattr(upper+path, name, b)
		if err != nil {
			t.Errorf("%s of %s: %v", name, path, err)
			return ""
		}
		return hex.EncodeToString(b[:n])
	}
	if st := stat("/etc/netsandbox-owned"); st.Uid != 33 || st.Gid != 42 || st.Mode&0o7777 != 0o2640 {
		t.Errorf("owned file is %d:%d %o", st.Uid, st.Gid, st.Mode)
	}
	if st := stat("/usr/local/bin/netsandbox-id"); st.Uid != 0 || st.Mode&0o7777 != 0o4755 {
		t.Errorf("setuid program is %d %o", st.Uid, st.Mode)
	}
	if st := stat("/etc/hostname"); st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 || st.Uid != 0 {
		t.Errorf("deletion is %o, device %d, uid %d", st.Mode, st.Rdev, st.Uid)
	}
	// VFS_CAP_REVISION_2 with the effective bit, CAP_NET_RAW permitted; revision 3
	// would name the root of a user namespace.
	if got, want := attr("/usr/local/bin/netsandbox-cat", "security.capability"), "0100000200200000000000000000000000000000"; got != want {
		t.Errorf("capability is %s, want %s", got, want)
	}
	// posix_acl_xattr: the named entry (tag 2) has the plain id 1234 = 0x4d2.
	if got := attr("/etc/netsandbox-acl", "system.posix_acl_access"); !strings.Contains(got, "02000600d2040000") {
		t.Errorf("access list is %s, without an entry for 1234", got)
	}
}
