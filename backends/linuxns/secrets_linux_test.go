package linuxns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
)

const marker = "MARKER-of-a-secret"

// guarded is a host with secrets of two users besides root. It has an /etc and a
// /home of its own.
func guarded(t *testing.T) mounted {
	t.Helper()
	m := newMounted(t)
	for _, dir := range []string{"/etc", "/home"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	}
	for path, text := range map[string]string{
		"/etc/passwd":                       "root:x:0:0::/root:/bin/sh\nbob:x:4242:4242::/home/bob:/bin/sh\n",
		"/etc/group":                        "root:x:0:\nshadow:x:42:\nbob:x:4242:\n",
		"/etc/shadow":                       "root:$6$" + marker + ":1::::::\nbob:!$6$" + marker + ":1::::::\n",
		"/etc/ssh/ssh_host_ed25519_key":     marker,
		"/etc/ssh/ssh_host_ed25519_key.pub": "public",
		"/home/bob/.ssh/id_ed25519":         marker,
		"/home/bob/.config/gcloud/adc":      marker,
		"/home/bob/.bashrc":                 "public",
		"/home/ldap/.aws/credentials":       marker,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
	}
	for path, id := range map[string]int{"/home/bob": 4242, "/home/ldap": 5555} {
		err := filepath.Walk(path, func(p string, _ os.FileInfo, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(p, id, id)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown("/etc/shadow", 0, 42); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("/etc/shadow", 0o640); err != nil {
		t.Fatal(err)
	}
	return m
}

func others(s *backends.Spec) { s.Secrets = &backends.Secrets{Owners: []uint32{0}} }

// hunt prints whatever holds the marker, in every place that a search finds.
const hunt = "grep -rsl " + marker + " /etc /home /proc/1/root/etc /proc/1/root/home 2>/dev/null; cat /home/bob/.bashrc /etc/ssh/*.pub; stat -c '%a %u:%g' /etc/shadow; cut -d: -f1,2 /etc/shadow"

const found = "public" + "public" + "640 0:42\nroot:*\nbob:!*\n"

func TestSecretsOfOthersAreHidden(t *testing.T) {
	for _, mode := range []string{"shifted", "caps"} {
		t.Run(mode, func(t *testing.T) {
			m := guarded(t)
			m.mount("/etc", "", unix.MS_BIND, "", "elsewhere")
			e := newEnv(t, others, func(s *backends.Spec) { s.Mode = mode })
			if _, out := e.sh(hunt); out != found {
				t.Errorf("found in the view:\n%s", out)
			}
			if _, out := e.sh("cat " + m.path("elsewhere/shadow") + " " + m.path("elsewhere/ssh/ssh_host_ed25519_key")); strings.Contains(out, marker) {
				t.Errorf("shown under another name: %s", out)
			}
			for _, where := range []backends.Where{backends.InCandidate, backends.InControl, backends.InCut, backends.InJail} {
				if o := e.canary(where, shell(hunt)); o.Output != strings.ReplaceAll(found, "\n", `\x0a`) && o.Output != found {
					t.Errorf("found by a canary in %s: %+v", where, o)
				}
			}
		})
	}
}

// Nothing that root inside can do takes a cover off, and nothing that it tries
// becomes a change.
func TestCoversAreLocked(t *testing.T) {
	guarded(t)
	e := newEnv(t, others)
	_, out := e.sh(`exec 2>/dev/null
umount /etc/shadow; umount -l /etc/ssh/ssh_host_ed25519_key; umount -l /home/bob/.ssh
mount -o remount,rw,bind /etc/shadow; echo x >>/etc/shadow
rm -rf /home/bob/.ssh /etc/shadow /etc/ssh/ssh_host_ed25519_key; mv /home/bob/.ssh /home/bob/ssh
mkdir /tmp/m && mount --bind /etc /tmp/m && cat /tmp/m/shadow; umount /tmp/m
mount --rbind /home /tmp/m && grep -r . /tmp/m; umount -l /tmp/m
mount -t overlay -o lowerdir=/etc:/home/bob none /tmp/m && grep -r . /tmp/m
unshare -Um --map-root-user sh -c 'umount -l /home/bob/.ssh; cat /home/bob/.ssh/*'
ln /etc/ssh/ssh_host_ed25519_key /etc/ssh/k; cat /etc/ssh/k
cat /proc/*/root/home/bob/.ssh/*; rmdir /tmp/m`)
	if strings.Contains(out, marker) {
		t.Errorf("shown:\n%s", out)
	}
	d, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(d.Changes, d.Ephemeral) {
		if strings.Contains(string(c.Path), "shadow") || strings.Contains(string(c.Path), ".ssh") || strings.Contains(string(c.Path), "host_ed25519_key") {
			t.Errorf("a change of what is hidden: %+v", c)
		}
	}
	for _, path := range []string{"/home/bob/.ssh/id_ed25519", "/etc/shadow", "/home/bob"} {
		if err := e.stage(path, ""); err == nil {
			t.Errorf("staged %s", path)
		}
	}
}

// A view that has built before shows nothing of what was made since, once it is
// built again.
func TestWhatAppearsLaterIsHiddenInTheNextView(t *testing.T) {
	guarded(t)
	e := newEnv(t, others, func(s *backends.Spec) { s.Hide = []string{"/home/later"} })
	e.must("true")
	for _, path := range []string{"/home/bob/.kube/config", "/home/later/x", "/home/new/.netrc"} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, marker)
	}
	if err := os.Chown("/home/new", 6666, 6666); err != nil {
		t.Fatal(err)
	}
	if _, out := e.sh(hunt); out != found {
		t.Errorf("found:\n%s", out)
	}
}

// A home directory is its owner's: what they put there hides nothing of others,
// and makes nobody wait.
func TestHomesAreNotTrusted(t *testing.T) {
	m := guarded(t)
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m.mount("dead", "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev.Fd()), "dead")
	for name, target := range map[string]string{
		".kube": "/etc", ".pgpass": "/etc/passwd", ".netrc": "loop", "loop": ".netrc", ".aws": m.path("dead/x"), ".azure": m.path("his"),
	} {
		if err := os.Symlink(target, filepath.Join("/home/bob", name)); err != nil {
			t.Fatal(err)
		}
	}
	m.mkdir("his")
	write(t, m.path("his/token"), marker)
	if err := os.Chown(m.path("his"), 4242, 4242); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	covers, notes, err := (&View{spec: backends.Spec{Secrets: &backends.Secrets{Owners: []uint32{0}, Show: []string{"/home/ldap"}}}}).Covers(t.Context())
	if err != nil || time.Since(started) > 5*time.Second {
		t.Fatalf("after %v: %v", time.Since(started), err)
	}
	var got []string
	for _, c := range covers {
		got = append(got, c.Path)
	}
	want := []string{"/etc/shadow", "/etc/ssh/ssh_host_ed25519_key", "/home/bob/.config/gcloud", "/home/bob/.ssh", m.path("his")}
	if !slices.Equal(got, want) {
		t.Errorf("covers %q, want %q", got, want)
	}
	if want := []string{"/home/bob/.aws is not hidden: it leads to a filesystem that may not answer"}; !slices.Equal(notes, want) {
		t.Errorf("notes %q, want %q", notes, want)
	}
}

// A second name of a hidden file cannot be found without a search of the disk,
// so it is said that there is one.
func TestSecondNameOfAHiddenFileIsSaid(t *testing.T) {
	guarded(t)
	if err := os.Link("/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/second"); err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, others)
	want := "/etc/ssh/ssh_host_ed25519_key has 2 names on the host; only this one is hidden"
	if !slices.Contains(e.made.Notes, want) {
		t.Errorf("notes %q, want %q", e.made.Notes, want)
	}
}
