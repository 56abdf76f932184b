package mountplan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

// table parses "id parent dev root point fs [ro | subvol=…]" lines.
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
		if sub, ok := strings.CutPrefix(opt, "subvol="); ok {
			m.Subvolume = sub
		}
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
		if e.Slow && e.Treatment != Excluded {
			b.WriteString(" slow")
		}
		if e.Implied {
			b.WriteString(" implied")
		}
		if e.Cover {
			b.WriteString(" covered")
		}
		b.WriteByte('\n')
	}
	covers := slices.Concat(p.Covers, p.State)
	slices.Sort(covers)
	fmt.Fprintf(&b, "cover %s\n", strings.Join(covers, " "))
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
				1 0 0:30 /@ / btrfs subvol=/@
				2 1 0:30 /@home /home btrfs subvol=/@home
				3 1 0:30 /@home/u /mnt/u btrfs subvol=/@home`,
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
			name: "what hides itself is hidden, in whatever order it was mounted",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:2 / /a/b ext4
				3 2 8:3 / /a/b xfs
				4 1 8:4 / /a xfs
				5 1 8:5 / /c xfs
				6 1 8:6 / /c/d ext4`,
			state: "/state",
			want: `
				/ layer root
				/a layer %2fa
				/c layer %2fc
				cover /state`,
		},
		{
			name: "a subvolume has its own layer, and shows in the whole filesystem",
			mounts: `
				1 0 0:30 /@ / btrfs subvol=/@
				2 1 0:30 /@home /home btrfs subvol=/@home
				3 1 0:30 / /mnt/all btrfs subvol=/
				4 1 0:30 /snap/1 /mnt/one btrfs subvol=/snap/1
				5 1 0:30 /@home/u /u btrfs subvol=/@home
				6 3 8:2 / /mnt/all/@ ext4`,
			state: "/home/state",
			want: `
				/ layer root
				/home layer %2fhome
				/mnt/all layer %2fmnt%2fall
				/mnt/all/@ layer %2fmnt%2fall%2f@
				/mnt/all/@home alias of /home at . implied
				/mnt/all/snap/1 alias of /mnt/one at . implied
				/mnt/one layer %2fmnt%2fone
				/u alias of /home at u
				cover /home/state /mnt/all/@home/state`,
		},
		{
			name: "what can be written is never an alias of what cannot",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:2 / /a ext4 ro
				3 1 8:2 / /later ext4
				4 1 8:3 / /ro ext4 ro
				5 1 8:3 /data /rw ext4`,
			state: "/state",
			want: `
				/ layer root
				/a alias of /later at .
				/later layer %2flater
				/ro layer %2fro
				/ro/data alias of /rw at . implied
				/rw layer %2frw
				cover /state`,
		},
		{
			name: "a source that was removed is nowhere else",
			mounts: `
				1 0 8:1 / / ext4
				2 1 8:1 /srv/old//deleted /mnt/old ext4
				3 1 8:1 /etc/f//deleted /etc/g ext4`,
			state: "/state",
			want: `
				/ layer root
				/etc/g layer %2fetc%2fg
				/mnt/old layer %2fmnt%2fold
				cover /state`,
		},
		{
			name: "filesystems of other machines are slow, and never a source",
			mounts: `
				1 0 8:1 / / ext4
				2 1 0:40 / /net/a nfs4
				3 1 0:40 /x /net/b nfs4
				4 2 8:2 / /net/a/local ext4
				5 4 8:2 /data /net/a/local/bound ext4
				6 1 8:2 / /here ext4`,
			state: "/state",
			want: `
				/ layer root
				/here layer %2fhere
				/net/a layer %2fnet%2fa slow
				/net/a/local alias of /here at . slow
				/net/a/local/bound alias of /here at data slow
				/net/b layer %2fnet%2fb slow
				cover /state`,
		},
		{
			name: "an automounter is never woken, and what it mounted is reached with care",
			mounts: `
				1 0 8:1 / / ext4
				2 1 0:41 / /net autofs
				3 2 0:42 / /net/a nfs4
				4 1 0:43 / /boot/efi autofs
				5 4 8:2 / /boot/efi vfat
				6 1 0:44 / /mnt/later autofs`,
			state: "/state",
			want: `
				/ layer root
				/boot/efi layer %2fboot%2fefi slow
				/mnt/later excluded: it mounts on demand, and a view triggers nothing on the host covered
				/net excluded: it mounts on demand, and a view triggers nothing on the host covered
				/net/a layer %2fnet%2fa slow
				cover /state`,
		},
		{
			name: "files in memory are files",
			mounts: `
				1 0 8:1 / / ext4
				2 1 0:40 / /mnt/ram ramfs`,
			state: "/state",
			want: `
				/ layer root
				/mnt/ram layer %2fmnt%2fram
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
			p, err := Make(table(t, tc.mounts), tc.state, tc.hide, nil)
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

func TestMakeWithoutARoot(t *testing.T) {
	if _, err := Make(table(t, "2 1 8:2 / /home ext4"), "/state", nil, nil); !errors.Is(err, ErrNoRoot) {
		t.Errorf("error %v", err)
	}
}

func TestKeyOfALongPath(t *testing.T) {
	a, b := Key("/"+strings.Repeat("a", 300)+"1"), Key("/"+strings.Repeat("a", 300)+"2")
	if a == b || len(a) > 255 {
		t.Errorf("keys %q and %q", a, b)
	}
}

func TestNames(t *testing.T) {
	ms := Visible(table(t, `
		1 0 8:1 / / ext4
		2 1 8:1 /etc/conf /run/conf ext4
		3 1 8:2 / /data ext4
		4 1 8:2 /d /mnt/d ext4
		5 1 8:1 /data/d /mnt/hidden ext4`))
	for target, want := range map[string][]string{
		"/etc/conf": {"/run/conf"}, "/etc": nil, "/data/d": {"/mnt/d"}, "/data": nil, "/run/conf": nil,
	} {
		if d := cmp.Diff(want, Names(ms, target)); d != "" {
			t.Errorf("%s (-want +got)\n%s", target, d)
		}
	}
}

// What a process stands on is its root, whatever is mounted there later.
func TestMountsOnTheRoot(t *testing.T) {
	ms := table(t, `
		1 0 8:1 / / ext4
		2 1 8:2 / /home ext4
		3 1 0:50 / / tmpfs
		4 3 8:3 / /home ext4
		5 3 8:4 / / xfs`)
	markBeyond(ms, 1)
	if n := OnRoot(ms); n != 2 {
		t.Errorf("%d mounts on the root", n)
	}
	p, err := Make(ms, "/state", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := render(p), "/ layer root\n/home layer %2fhome\ncover /state\n"; got != want || p.Entries[1].ID != 2 {
		t.Errorf("got %s (%+v)", got, p.Entries)
	}
	for i := range ms {
		ms[i].beyondLookup = false
	}
	if p, err = Make(ms, "/state", nil, nil); err != nil || len(p.Entries) != 1 || p.Entries[0].ID != 5 {
		t.Errorf("for one who came later: %+v, %v", p.Entries, err)
	}
}

func TestMarksAndOptions(t *testing.T) {
	const line = `36 35 98:0 /@/a\040b /mnt/new\012line\134and,comma:"colon" rw,noatime,nosuid,nosymfollow master:1 - btrfs /dev/x ro,subvolid=256,subvol=/@`
	infos, err := mountinfo.GetMountsFromReader(strings.NewReader(line+"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Mount{
		ID: 36, Parent: 35, Dev: "98:0", Root: "/@/a b", Point: "/mnt/new\nline\\and,comma:\"colon\"", FS: "btrfs",
		Subvolume: "/@", ReadOnly: true, NoSuid: true, NoSymFollow: true,
	}
	if d := cmp.Diff(want, parse(infos[0]), cmp.AllowUnexported(Mount{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestLayersOfAnOverlay(t *testing.T) {
	for options, want := range map[string][]string{
		`rw,lowerdir=/a:/b,upperdir=/u/x,workdir=/w`:          {"/a", "/b", "/u/x"},
		`rw,lowerdir+=/a\040b,lowerdir+=/c\054d,xino=off`:     {"/a b", "/c,d"},
		`ro,lowerdir=/with\134:colon:relative:/back\134\134s`: {"/with:colon", `/back\s`},
		`rw,size=1m`: nil,
	} {
		if d := cmp.Diff(want, layersOf(options)); d != "" {
			t.Errorf("%s (-want +got)\n%s", options, d)
		}
	}
}

func TestStateThroughAnOverlay(t *testing.T) {
	ms := table(t, "1 0 8:1 / / ext4\n2 1 0:40 / /merged overlay\n3 1 0:40 /var /bound overlay")
	for i := range ms[1:] {
		ms[i+1].Layers = []string{"/nothing", "/"}
	}
	p, err := Make(ms, "/var/state", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"/bound/state", "/merged/var/state", "/var/state"}, p.State); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// A layer that holds something stays where it is, whatever is mounted beside it.
func TestLayersStay(t *testing.T) {
	holds := func(point string) bool { return point == "/srv/data" || point == "/z" }
	p, err := Make(table(t, `
		1 0 8:1 / / ext4
		2 1 8:2 /data /srv/data ext4
		3 1 8:2 / /mnt ext4
		4 1 8:3 / /z ext4 ro
		5 1 8:3 / /a ext4`), "/state", nil, holds)
	if err != nil {
		t.Fatal(err)
	}
	want := "/ layer root\n/a alias of /z at .\n/mnt layer %2fmnt\n/mnt/data alias of /srv/data at . implied\n/srv/data layer %2fsrv%2fdata\n/z layer %2fz\ncover /state\n"
	if d := cmp.Diff(want, render(p)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
