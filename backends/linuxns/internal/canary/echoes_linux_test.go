package canary

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
)

// socketsArg makes this test binary a canary that opens sockets: each is
// "domain:type:protocol".
const socketsArg = "open-sockets"

func openSockets(sockets []string) int {
	for _, s := range sockets {
		var domain, kind, protocol int
		if _, err := fmt.Sscanf(s, "%d:%d:%d", &domain, &kind, &protocol); err != nil {
			return 2
		}
		fd, err := unix.Socket(domain, kind, protocol)
		if err == nil {
			unix.Close(fd)
		}
		fmt.Printf("%s %v;", s, err == nil)
	}
	return 7
}

// TestEchoSocketsAreSeen, and let be whatever the kernel makes of them.
func TestEchoSocketsAreSeen(t *testing.T) {
	socket := func(domain, kind, protocol int) string { return fmt.Sprintf("%d:%d:%d", domain, kind, protocol) }
	ping := socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	raw := socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
	for _, row := range []struct {
		name    string
		sockets []string
		want    Asked
	}{
		{"ordinary ones", []string{
			socket(unix.AF_INET, unix.SOCK_STREAM, 0), socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP),
			socket(unix.AF_UNIX, unix.SOCK_STREAM, 0), socket(unix.AF_NETLINK, unix.SOCK_RAW, 0),
		}, Asked{}},
		{"a ping socket", []string{ping}, Asked{Ping: true}},
		{"of IPv6", []string{socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6)}, Asked{Ping: true}},
		{"a raw one", []string{raw}, Asked{Raw: true}},
		{"of IPv6, for anything", []string{socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_TCP)}, Asked{Raw: true}},
		{"one for frames", []string{socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)}, Asked{Raw: true}},
		{"either, as ping does", []string{ping, raw, ping}, Asked{Ping: true, Raw: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			p := backends.Probe{Argv: append([]string{exe, socketsArg}, row.sockets...)}
			without, none, err := watchedCanary(t, p, unix.CLONE_NEWNET, false)
			if err != nil || without.Exit != 7 || none != (Asked{}) {
				t.Fatalf("unwatched: %+v, %+v, %v", without, none, err)
			}
			got, asked, err := watchedCanary(t, p, unix.CLONE_NEWNET, true)
			if err != nil || got.Exit != 7 || asked != row.want {
				t.Errorf("%+v, %+v, %v; want %+v", got, asked, err, row.want)
			}
			if got.Output != without.Output {
				t.Errorf("watched %q, unwatched %q", got.Output, without.Output)
			}
		})
	}
}

// TestWatchedCanaryTimesOut although it waits for a socket's answer all the time.
func TestWatchedCanaryTimesOut(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := sh("while :; do " + exe + " " + socketsArg + " 2:3:1; done")
	p.Timeout = 300 * time.Millisecond
	got, asked, err := watchedCanary(t, p, unix.CLONE_NEWNET, true)
	if err != nil || !got.TimedOut || !asked.Raw {
		t.Errorf("%+v, %+v, %v", got, asked, err)
	}
}
