package change

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandsForAttributes(t *testing.T) {
	file := Entry{Type: Regular, Mode: 0o644, SHA256: "aa", Size: 2}
	dir := Entry{Type: Directory, Mode: 0o755}
	plain, plainDir, owned := file, dir, file
	owned.UID, owned.Xattrs = 1000, map[string][]byte{capability: netCaps, "user.k": []byte("v")}
	both := dir
	both.Xattrs = map[string][]byte{accessACL: readACL, defaultACL: dirACL}
	edited := owned
	edited.SHA256, edited.UID = "bb", 0
	var crowd []ace
	for id := range uint32(100) {
		crowd = append(crowd, ace{aclUser, 7, id})
	}
	for _, tt := range []struct {
		name     string
		old, new *Entry
		want     []string
	}{
		{"an ACL where there was none", &plain, with(file, accessACL, readACL), []string{"setfacl -m u:1000:r--,g::r-x,m::rwx /f"}},
		{"another ACL", with(file, accessACL, dirACL), with(file, accessACL, readACL), []string{"setfacl --set u::rw-,u:1000:r--,g::r-x,m::rwx,o::r-- /f"}},
		{"no ACL any more", with(file, accessACL, readACL), &plain, []string{"setfacl -b /f", "chmod 0644 /f"}},
		{"no ACL any more, and the group had what it has", with(dir, accessACL, readACL), &plainDir, []string{"setfacl -b /f"}},
		{"no default ACL any more", with(dir, defaultACL, dirACL), &plainDir, []string{"setfacl -k /f"}},
		{"no access ACL any more", &both, with(dir, defaultACL, dirACL), []string{"setfacl --set u::rwx,g::r-x,o::r-x /f"}},
		{"neither any more", &both, &plainDir, []string{"setfacl -b /f"}},
		{"a default ACL", &plainDir, with(dir, defaultACL, dirACL), []string{"setfacl -d -m u::rwx,g::r-x,g:50:rw-,m::rwx,o::--- /f"}},
		{"an ACL of hundred", &plain, with(file, accessACL, acl(crowd...)), []string{"setfacl --set-file=- /f # 100 entries"}},
		{"an ACL nobody can read", &plain, with(file, accessACL, []byte{9}), []string{"setfattr -n system.posix_acl_access -v 0x09 /f"}},

		{"capabilities", &plain, with(file, capability, netCaps), []string{"setcap cap_net_admin+ep /f"}},
		{"two sets of them", &plain, with(file, capability, words(0x02000000, 1, 2, 0, 0)), []string{"setcap 'cap_chown+p cap_dac_override+i' /f"}},
		{"those of a user namespace", &plain, with(file, capability, words(0x03000001, 1, 0, 0, 0, 1000)), []string{"setcap -n 1000 cap_chown+ep /f"}},
		{"no capabilities any more", with(file, capability, netCaps), &plain, []string{"setcap -r /f"}},
		{"chown takes them away", with(file, capability, netCaps), &owned, []string{"chown 1000:0 /f", "setfattr -n user.k -v v /f", "setcap cap_net_admin+ep /f"}},
		{"and does what setcap -r would", with(file, capability, netCaps), &Entry{Type: Regular, Mode: 0o644, UID: 1, SHA256: "aa"}, []string{"chown 1:0 /f"}},
		{"new content has all of them", &owned, &edited, []string{"install -m 0644 -o 0 -g 0 /dev/stdin /f # 2 bytes, sha256 bb", "setfattr -n user.k -v v /f", "setcap cap_net_admin+ep /f"}},

		{"an attribute", &plain, with(file, "user.k", []byte("it's")), []string{`setfattr -n user.k -v 'it'\''s' /f`}},
		{"an empty one", &plain, with(file, "user.k", nil), []string{"setfattr -n user.k /f"}},
		{"none any more", with(file, "user.a b", nil), &plain, []string{"setfattr -x 'user.a b' /f"}},
		{"a value that looks like an encoding", &plain, with(file, "user.k", []byte("0sYQ==")), []string{"setfattr -n user.k -v 0x307359513d3d /f"}},
		{"a value with a quote", &plain, with(file, "user.k", []byte(`a"`)), []string{"setfattr -n user.k -v 0x6122 /f"}},
		{"a value with a backslash", &plain, with(file, "user.k", []byte(`a\n`)), []string{"setfattr -n user.k -v 0x615c6e /f"}},
		{"a long value", &plain, with(file, "user.k", []byte(strings.Repeat("a", 1000))), []string{"setfattr --restore=- # user.k of /f, 1000 bytes, sha256 41edece42d63"}},
		{"a key", &plain, with(file, "user.k", []byte("PrivateKey = x")), []string{"setfattr --restore=- # user.k of /f, 14 bytes, sha256 621c5219b3f4"}},
		{"an attribute of a symlink", nil, with(Entry{Type: Symlink, Target: "/t"}, "trusted.k", []byte("v")), []string{"ln -s /t /f", "setfattr -h -n trusted.k -v v /f"}},
		{"an attribute of a fifo", nil, with(Entry{Type: Fifo, Mode: 0o600}, "trusted.k", []byte("v")), []string{"mkfifo -m 0600 /f", "setfattr -n trusted.k -v v /f"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, Change{Path: "/f", Old: tt.old, New: tt.new}.Commands()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The whole list can be typed from top to bottom.
func TestScriptIsInOrder(t *testing.T) {
	dir, file := &Entry{Type: Directory, Mode: 0o755}, &Entry{Type: Regular, Mode: 0o644, SHA256: "aa", Size: 2}
	linked := *file
	linked.Link = "/n/a"
	got := Script([]Change{
		{Path: "/n/b", New: &linked},
		{Path: "/n", New: with(*dir, defaultACL, dirACL)},
		{Path: "/n/a", New: file},
		{Path: "/d", Old: dir},
		{Path: "/d/x", Old: dir},
		{Path: "/d-x", Old: file},
		{Path: "/d/x/y", Old: file},
		{Path: "/e", Old: dir, New: file},
		{Path: "/e/f", Old: file},
		{Path: "/g", Old: file, New: dir},
		{Path: "/g/h", New: file},
	})
	want := []string{
		"rm /e/f", "rm /d/x/y", "rmdir /d/x", "rm /d-x", "rmdir /d",
		"rmdir /e", "install -m 0644 -o 0 -g 0 /dev/stdin /e # 2 bytes, sha256 aa",
		"rm /g", "mkdir -m 0755 /g", "install -m 0644 -o 0 -g 0 /dev/stdin /g/h # 2 bytes, sha256 aa",
		"mkdir -m 0755 /n", "install -m 0644 -o 0 -g 0 /dev/stdin /n/a # 2 bytes, sha256 aa", "ln -f /n/a /n/b",
		"setfacl -d -m u::rwx,g::r-x,g:50:rw-,m::rwx,o::--- /n",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := Script(nil); got == nil || len(got) != 0 {
		t.Errorf("no changes are %#v, want an empty list", got)
	}
}
