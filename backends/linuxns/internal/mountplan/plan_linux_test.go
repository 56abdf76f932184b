package mountplan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// table parses "id parent dev root point fs [ro]" lines.
func table(t *testing.T, text string) []Mount {
	t.Helper()
	var ms []Mount
	for l := range strings.Lines(text) {
		var m Mount
		var opt string
		n, err := fmt.Sscan(l, &m.ID, &m.Parent, &m.Dev, &m.Root, &m.Point, &m.FS, &opt)
		if n == 0 {
			continue
		}
		if n < 6 {
			t.Fatalf("%q: %v", l, err)
		}
		m.ReadOnly = opt == "ro"
		ms = append(ms, m)
	}
	return ms
}

// render writes a plan, one line an entry.
func render(p Plan) string {
	var b strings.Builder
	for _, e := range p.Entries {
		fmt.Fprintf(&b, "%s %s", e.Point, e.Treatment)
		switch {
		case e.Treatment == Alias:
			fmt.Fprintf(&b, " of %s at %s", p.Entries[e.Of].Point, e.Rel)
		case e.Treatment == Layer:
			fmt.Fprintf(&b, " %s", e.Key)
		default:
			fmt.Fprintf(&b, ": %s", e.Reason)
		}
		if e.Slow && e.Treatment == Layer {
			b.WriteString(" slow")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "cover %s\n", strings.Join(p.Covers, " "))
	return b.String()
}

func TestMake(t *testing.T) {
	for _, tc := range []struct {
		name, mounts, state string
		hide                []string
		want                string
	}{
		{
			name: "an ordinary machine",
			mounts: `
				1 0 8:1 / / ext4
				2 1 0:5 / /proc proc
				3 1 0:6 / /sys sysfs
				4 1 0:7 / /dev devtmpfs
				5 1 0:8 / /run tmpfs
				6 5 0:9 / /run/user/1000 tmpfs
				7 1 8:2 / /home xfs
				8 1 0:10 / /tmp tmpfs
				9 1 0:11 / /srv/chroot/proc proc`,
			state: "/var/lib/netsandbox",
			want: `
				/ layer root
				/dev excluded: the view has its own /dev
				/home layer %2fhome
				/proc excluded: the view has its own /proc
				/run excluded: the view has its own /run
				/run/user/1000 excluded: the view has its own /run
				/srv/chroot/proc excluded: kernel filesystem
				/sys excluded: the view has its own /sys
				/tmp layer %2ftmp
				cover /var/lib/netsandbox`,
		},
		{
			name: "a bind is an alias although its path sorts first",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:2 /data /a/alias ext4
				3 1 8:2 / /z ext4
				4 1 8:1 /etc/hosts /b/hosts ext4`,
			state: "/state",
			want: `
				/ layer root
				/a/alias alias of /z at data
				/b/hosts alias of / at etc/hosts
				/z layer %2fz
				cover /state`,
		},
		{
			name: "parts of one filesystem that do not hold each other",
			mounts: `
				1 0 0:30 /@ / btrfs
				2 1 0:30 /@home /home btrfs
				3 1 0:30 /@home/u /mnt/u btrfs`,
			state: "/state",
			want: `
				/ layer root
				/home layer %2fhome
				/mnt/u alias of /home at u
				cover /state`,
		},
		{
			name: "the state directory is covered wherever it shows",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:1 /var /mnt/var ext4
				3 1 8:1 /var/lib /mnt/lib ext4
				4 1 8:2 / /var/lib/netsandbox/disk ext4`,
			state: "/var/lib/netsandbox",
			want: `
				/ layer root
				/mnt/lib alias of / at var/lib
				/mnt/var alias of / at var
				/var/lib/netsandbox/disk excluded: below the state directory
				cover /mnt/lib/netsandbox /mnt/var/lib/netsandbox /var/lib/netsandbox`,
		},
		{
			name: "so is what is to be hidden, on a filesystem of its own",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:2 / /secret ext4
				3 1 8:2 /keys /etc/keys ext4`,
			state: "/state",
			hide:  []string{"/secret/keys/"},
			want: `
				/ layer root
				/etc/keys alias of /secret at keys
				/secret layer %2fsecret
				cover /etc/keys /secret/keys /state`,
		},
		{
			name: "what a later mount hides is not in the view",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:2 / /srv/a ext4
				3 1 8:3 / /srv xfs
				4 1 8:4 / /mnt ext4
				5 4 8:5 / /mnt/below ext4
				6 4 8:6 / /mnt xfs
				7 6 8:7 / /mnt/top ext4`,
			state: "/state",
			want: `
				/ layer root
				/mnt layer %2fmnt
				/mnt/top layer %2fmnt%2ftop
				/srv layer %2fsrv
				cover /state`,
		},
		{
			name: "filesystems of other machines are slow, and never a source",
			mounts: `
				1 0 8:1 / / ext4
				2 1 0:40 / /net/a nfs4
				3 1 0:40 /x /net/b nfs4
				4 1 0:41 / /net autofs`,
			state: "/state",
			want: `
				/ layer root
				/net excluded: kernel filesystem
				cover /state`,
		},
		{
			name: "names that need escaping, and /root beside the root",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:2 / /root ext4
				3 1 8:3 / /a%2fb ext4
				4 1 8:4 / /a/b ext4`,
			state: "/state",
			want: `
				/ layer root
				/a%2fb layer %2fa%252fb
				/a/b layer %2fa%2fb
				/root layer %2froot
				cover /state`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := Make(table(t, tc.mounts), tc.state, tc.hide)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.TrimPrefix(strings.ReplaceAll(tc.want, "\t", ""), "\n") + "\n"
			if d := cmp.Diff(want, render(p)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestMakeSlow(t *testing.T) {
	p, err := Make(table(t, "1 0 8:1 / / ext4\n2 1 0:40 / /net/a nfs4\n3 1 0:40 /x /net/b nfs4"), "/state", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "/ layer root\n/net/a layer %2fnet%2fa slow\n/net/b layer %2fnet%2fb slow\ncover /state\n"
	if got := render(p); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestMakeWithoutARoot(t *testing.T) {
	if _, err := Make(table(t, "2 1 8:2 / /home ext4"), "/state", nil); !errors.Is(err, ErrNoRoot) {
		t.Errorf("error %v", err)
	}
}

func TestKeyOfALongPath(t *testing.T) {
	a, b := Key("/"+strings.Repeat("a", 300)+"1"), Key("/"+strings.Repeat("a", 300)+"2")
	if a == b || len(a) > 255 {
		t.Errorf("keys %q and %q", a, b)
	}
}
