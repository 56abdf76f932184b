package change

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// acl builds an ACL in the kernel's form.
func acl(entries ...ace) []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range entries {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// words builds security.capability in the kernel's form.
func words(ws ...uint32) []byte {
	var b []byte
	for _, w := range ws {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

var (
	readACL = acl(ace{aclUserObj, 6, noID}, ace{aclUser, 4, 1000}, ace{aclGroupObj, 5, noID}, ace{aclMask, 7, noID}, ace{aclOther, 4, noID})
	dirACL  = acl(ace{aclUserObj, 7, noID}, ace{aclGroupObj, 5, noID}, ace{aclGroup, 6, 50}, ace{aclMask, 7, noID}, ace{aclOther, 0, noID})
	netCaps = words(0x02000001, 1<<12, 0, 0, 0)
)

const noID = 0xFFFFFFFF

func with(e Entry, name string, value []byte) *Entry {
	e.Xattrs = map[string][]byte{name: value}
	return &e
}

func TestAttributesInWords(t *testing.T) {
	many := []ace{{aclUserObj, 6, noID}}
	for id := range uint32(100) {
		many = append(many, ace{aclUser, 7, id})
	}
	for _, tt := range []struct {
		name  string
		attr  string
		value []byte
		want  string
	}{
		{"an ACL", accessACL, readACL, "ACL u:1000:r--,g::r-x,m::rwx"},
		{"a default ACL", defaultACL, dirACL, "default ACL u::rwx,g::r-x,g:50:rw-,m::rwx,o::---"},
		{"a long ACL", accessACL, acl(many...), "ACL u:0:rwx,u:1:rwx,u:2:rwx,u:3:rwx,u:4:rwx,u:5:rwx,u:6:rwx,u:7:rwx,u:8:rwx,u:9:rwx… (101 entries)"},
		{"an ACL of another version", accessACL, append([]byte{3}, readACL[1:]...), "ACL 0x03000000" + "01000600ffffffff" + "02000400e8030000" + "04000500ffffffff" + "10000700ffffffff" + "20000400ffffffff"},
		{"an ACL with a part of an entry", accessACL, readACL[:15], "ACL 0x02000000" + "01000600ffffffff" + "020004"},
		{"an ACL with a tag that does not exist", accessACL, acl(ace{3, 6, 0}), "ACL 0x02000000" + "0300060000000000"},
		{"an ACL with more than rwx", accessACL, acl(ace{aclUser, 8, 0}), "ACL 0x02000000" + "0200080000000000"},
		{"capabilities", capability, netCaps, "capabilities cap_net_admin+ep"},
		{"several sets", capability, words(0x02000000, 1<<12|1<<13, 1<<13|1, 1<<8, 0), "capabilities cap_net_raw+ip cap_net_admin,cap_checkpoint_restore+p cap_chown+i"},
		{"no capability", capability, words(0x02000000, 0, 0, 0, 0), "capabilities ="},
		{"one without a name", capability, words(0x02000001, 0, 0, 1<<31, 0), "capabilities 63+ep"},
		{"those of a user namespace", capability, words(0x03000001, 1, 0, 0, 0, 1000), "capabilities cap_chown+ep (for the user namespaces of uid 1000)"},
		{"the first revision", capability, words(0x01000001, 1, 0), "capabilities cap_chown+ep"},
		{"a size of another revision", capability, words(0x03000001, 1, 0, 0, 0), "capabilities 0x01000003" + "01000000" + strings.Repeat("0", 24)},
		{"flags nobody knows", capability, words(0x02000002, 1, 0, 0, 0), "capabilities 0x02000002" + "01000000" + strings.Repeat("0", 24)},
		{"text", "user.k", []byte("it's"), `attribute user.k "it's"`},
		{"nothing", "user.k", nil, `attribute user.k ""`},
		{"control bytes", "user.\x1b", []byte("\x1b[2J"), `attribute user.\x1b 0x1b5b324a`},
		{"long text", "user.k", []byte(strings.Repeat("a", 1000)), `attribute user.k "` + strings.Repeat("a", 80) + `"… (1000 bytes)`},
		{"a key", "user.k", []byte("PrivateKey = x"), "attribute user.k [private key masked, sha256 621c5219]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Attributes(with(Entry{Type: Regular}, tt.attr, tt.value))
			if d := cmp.Diff([]string{tt.want}, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestDifferencesInWords(t *testing.T) {
	file := Entry{Type: Regular, Mode: 0o644, SHA256: "aa"}
	plain, linked := file, file
	linked.Link = "/first"
	for _, tt := range []struct {
		name     string
		old, new *Entry
		want     []string
	}{
		{"an ACL is added", &plain, with(file, accessACL, readACL), []string{"ACL none -> u:1000:r--,g::r-x,m::rwx"}},
		{"capabilities change", with(file, capability, words(0x02000000, 1, 0, 0, 0)), with(file, capability, netCaps), []string{"capabilities cap_chown+p -> cap_net_admin+ep"}},
		{"an attribute goes", with(file, "user.k", []byte("v")), &plain, []string{`attribute user.k "v" -> none`}},
		{"an empty value is a value", &plain, with(file, "user.k", nil), []string{`attribute user.k none -> ""`}},
		{"a name joins another", &plain, &linked, []string{"becomes one file with /first"}},
		{"a name is joined", &plain, &plain, []string{"other names become one file with it"}},
		{"a new name", nil, &linked, []string{"new file, one with /first, mode 0644, owner 0:0"}},
		{"a fifo", nil, &Entry{Type: Fifo, Mode: 0o600}, []string{"new fifo, mode 0600, owner 0:0"}},
		{"a directory with attributes", nil, with(Entry{Type: Directory, Mode: 0o2750}, defaultACL, dirACL), []string{"new directory, mode 2750 (setgid), owner 0:0, default ACL u::rwx,g::r-x,g:50:rw-,m::rwx,o::---"}},
		{"a symlink with an attribute", nil, with(Entry{Type: Symlink, Target: "/t"}, "trusted.k", []byte("v")), []string{`new symlink to /t, owner 0:0, attribute trusted.k "v"`}},
		{"holes", nil, &Entry{Type: Regular, Sparse: true}, []string{"new file with holes, mode 0000, owner 0:0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Words(Change{Path: "/f", Old: tt.old, New: tt.new})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestSizeForReading(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 307200: "307200 bytes", 1 << 20: "1.0 MiB", 3 << 29: "1.5 GiB", 1<<30 - 1: "1.0 GiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// Attributes come from a layer that a hostile command wrote: whatever their
// bytes, they are rendered on one line and shown to be what they are.
func FuzzAttributes(f *testing.F) {
	for _, v := range [][]byte{nil, readACL, dirACL, netCaps, words(0x03000001, 1, 0, 0, 0, 7), words(0x01000001, 1, 0), []byte("v"), []byte("0x"), []byte("a\"b\n")} {
		for _, name := range []string{accessACL, defaultACL, capability, "user.k"} {
			f.Add(name, v, []byte("w"))
		}
	}
	f.Fuzz(func(t *testing.T, name string, old, value []byte) {
		file := Entry{Type: Regular, Mode: 0o644, SHA256: "aa"}
		c := Change{Path: "/f", Old: with(file, name, old), New: with(file, name, value)}
		bare := Change{Path: "/f", Old: c.Old, New: &file}
		all := append(Words(c), c.Commands()...)
		all = append(append(all, Words(bare)...), bare.Commands()...)
		all = append(all, Attributes(c.New)...)
		for _, line := range all {
			if strings.ContainsFunc(line, func(r rune) bool { return r != '\\' && unsafe(r) }) || len(line) > 2000+8*len(name) {
				t.Errorf("rendered as %q", line)
			}
		}
		if a, ok := decodeACL(value); ok && !bytes.Equal(acl(a...), value) {
			t.Errorf("%x is read as %v", value, a)
		}
	})
}
