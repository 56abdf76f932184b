package manifest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// What only root can make: owners, capabilities, flags, and overlayfs's marks,
// which are left out.
func TestWhatOnlyRootCanMake(t *testing.T) {
	nstest.New(t, nstest.Root, nstest.Overlay, nstest.Tool("setfacl"), nstest.Tool("setcap"), nstest.Tool("chattr"))
	d := t.TempDir()
	for _, n := range []string{"acl", "cap", "fixed", "log", "mine"} {
		file(t, d+"/"+n, "", 0o644)
	}
	t.Cleanup(func() { run(t, "chattr", "-i", "-a", d+"/fixed", d+"/log") })
	run(t, "setfacl", "-m", "u:7:rw", d+"/acl")
	run(t, "setcap", "cap_net_raw=ep", d+"/cap")
	run(t, "chattr", "+i", d+"/fixed")
	run(t, "chattr", "+a", d+"/log")
	must(t, os.Chown(d+"/mine", 7, 8), unix.Setxattr(d+"/mine", "trusted.overlay.origin", []byte("x"), 0), unix.Setxattr(d+"/mine", "trusted.k", nil, 0))
	var got []string
	for _, l := range read(t, d, manifest.Options{})[1:] {
		l, _, _ = strings.Cut(l, manifest.MTime)
		got = append(got, strings.Replace(l, "size 0 sha256 "+empty, "empty", 1))
	}
	want := []string{
		"./acl file 0664 empty 0:0",
		`./acl xattr system.posix_acl_access "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x06\x00\a\x00\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x06\x00\xff\xff\xff\xff \x00\x04\x00\xff\xff\xff\xff"`,
		"./cap file 0644 empty 0:0",
		`./cap xattr security.capability "\x01\x00\x00\x02\x00 \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"`,
		"./fixed file 0644 empty 0:0", "./fixed flag immutable",
		"./log file 0644 empty 0:0", "./log flag append-only",
		"./mine file 0644 empty 7:8", `./mine xattr trusted.k ""`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}
