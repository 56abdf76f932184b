package canary

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// replace shows content at path, in the test's mount namespace only.
func replace(t *testing.T, path, content string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("replace %s: %v", path, err)
	}
}

func TestLoginEnvironmentIsTheWorldsOwn(t *testing.T) {
	nstest.NewMount(t)
	home := t.TempDir()
	for _, dir := range []string{home, filepath.Dir(home)} { // the second is 0700
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	replace(t, "/etc/passwd", "root:x:0:0::/root:/bin/bash\nagent:x:4242:4242:An agent:"+home+":/bin/zsh\n")
	replace(t, "/etc/environment", "# comment\nHTTPS_PROXY=\"http://127.0.0.1:7890\"\nexport LANG='C.UTF-8'\nPATH=/usr/bin:/bin\nbroken line\n")
	got, err := canary(t, backends.Probe{
		Argv: []string{"env"}, Env: []string{"API_KEY_FILE=/k", "LANG=C"}, Login: true, UID: 4242, GID: 4242,
		Cwd: "/nonexistent",
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PATH=/usr/bin:/bin", "HOME=" + home, "SHELL=/bin/zsh", "USER=agent", "LOGNAME=agent",
		"HTTPS_PROXY=http://127.0.0.1:7890", "LANG=C", "API_KEY_FILE=/k", "",
	}
	if diff := gocmp.Diff(want, strings.Split(got.Output, `\x0a`)); diff != "" {
		t.Errorf("environment (-want +got):\n%s%+v", diff, got)
	}
	p := sh("pwd")
	p.Login, p.UID, p.Cwd = true, 4242, "/nonexistent"
	if got, err = canary(t, p, 0); err != nil || got.Output != home+`\x0a` {
		t.Errorf("working directory of a login: %+v, %v", got, err)
	}
}

func TestDial(t *testing.T) {
	ns := nstest.New(t)
	replace(t, "/etc/hosts", "127.0.0.1 api.test\n::1 api6.test\n")
	replace(t, "/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
	replace(t, "/etc/nsswitch.conf", "hosts: files dns\n")
	listen := func(network, addr string) string {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port
	}
	four, six := listen("tcp4", "127.0.0.1:0"), listen("tcp6", "[::1]:0")
	for _, tt := range []struct {
		name  string
		probe backends.Probe
		err   string
	}{
		{"IPv4", backends.Probe{Dial: "127.0.0.1:" + four}, ""},
		{"IPv6", backends.Probe{Dial: "[::1]:" + six}, ""},
		{"by the world's hosts file", backends.Probe{Dial: "api.test:" + four}, ""},
		{"by the world's hosts file, IPv6", backends.Probe{Dial: "api6.test:" + six}, ""},
		{"bound to an interface", backends.Probe{Dial: "127.0.0.1:" + four, Interface: "lo"}, ""},
		{"as somebody", backends.Probe{Dial: "127.0.0.1:" + four, Interface: "lo", UID: 1000}, ""},
		{"refused", backends.Probe{Dial: "127.0.0.1:1"}, "connection refused"},
		{"unreachable", backends.Probe{Dial: "192.0.2.1:1"}, "network is unreachable"},
		{"no such interface", backends.Probe{Dial: "127.0.0.1:1", Interface: "eth9"}, "interface eth9: route ip+net: no such network interface"},
		{"malformed", backends.Probe{Dial: "127.0.0.1"}, "dial tcp: address 127.0.0.1: missing port in address"},
	} {
		ns.Run(t, tt.name, func(t *testing.T) {
			got, err := canary(t, tt.probe, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got.Err != tt.err || got.OK() != (tt.err == "") {
				t.Errorf("got %+v, want error %q", got, tt.err)
			}
		})
	}
	silent := backends.Probe{Dial: "unknown.test:80", Timeout: 200 * time.Millisecond}
	udp, err := net.ListenPacket("udp4", "127.0.0.1:53") // a name server that never answers
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	got, err := canary(t, silent, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !got.TimedOut || got.OK() || got.Took > 5*time.Second {
		t.Errorf("silent name server: %+v", got)
	}
}
