package workflow

import (
	"fmt"
	"slices"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/workflow/clock"
)

func TestOwnPort(t *testing.T) {
	for _, row := range []struct {
		address string
		port    uint16
	}{
		{"127.0.0.1:80", 80},
		{"127.3.4.5:80", 80},
		{"[::1]:443", 443},
		{"[::ffff:127.0.0.1]:443", 443},
		{"localhost:8080", 8080},
		{"192.0.2.1:80", 0},
		{"[2001:db8::1]:80", 0},
		{"127.0.0.1:0", 0},
		{"127.0.0.1:65536", 0},
		{"127.0.0.1", 0},
		{":80", 0},
		{"", 0},
	} {
		port, own := ownPort(t.Context(), row.address)
		if own != (row.port != 0) || own && port != row.port {
			t.Errorf("%q: %d, %v", row.address, port, own)
		}
	}
}

func TestProxyVariablesNamePorts(t *testing.T) {
	got := proxyPorts(t.Context(), []string{
		"HTTP_PROXY=http://127.0.0.1:7890", "http_proxy=127.0.0.1:7890", "https_proxy=http://u:p@localhost:7891/", "ALL_PROXY=socks5h://[::1]:7892",
		"ftp_proxy=http://192.0.2.1:3128", "HTTPS_PROXY=http://127.0.0.1:22", "no_proxy=127.0.0.1:7893", "all_proxy=://",
	})
	if want := []uint16{7890, 7891, 7892}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestUnnamedPortsAreExplained: what a view did not reach because nobody named its
// port is told with how to name it, and nothing else is.
func TestUnnamedPortsAreExplained(t *testing.T) {
	refused := func(s string) answer { return answer{out: backends.Outcome{Exit: 1, Output: s}} }
	const hint = "; views reach only named ports of this machine: netsandbox "
	for _, row := range []struct {
		name, says, want string
		host             answer
	}{
		{"a Go client", "dial tcp 127.0.0.1:7893: connect: connection refused", hint + "circuit add-tcp e LABEL 127.0.0.1:7893", passes},
		{"of IPv6", "dial tcp [::1]:7893: connect: connection refused", hint + "circuit add-tcp e LABEL [::1]:7893", passes},
		{"curl", "curl: (7) Failed to connect to localhost port 7893 after 0 ms: Connection refused", hint + "circuit add-tcp e LABEL localhost:7893", passes},
		{"curl of today", "curl: (7) Failed to connect to 127.0.0.1 port 7893 after 0 ms: Couldn't connect to server", hint + "circuit add-tcp e LABEL 127.0.0.1:7893", passes},
		{"ssh's port is for --relay alone", "connect to 127.0.0.1 port 22: Connection refused", hint + "create NAME --relay 22", passes},
		{"another machine", "dial tcp 192.0.2.1:80: connect: connection refused", "", passes},
		{"no refusal", "127.0.0.1:7893: not found", "", passes},
		{"the host is refused too", "dial tcp 127.0.0.1:7893: connect: connection refused", "", fails},
	} {
		t.Run(row.name, func(t *testing.T) {
			no := refused(row.says)
			o := observer{env: "e", runner: worlds{backends.InCandidate: no, backends.InControl: no, backends.InJail: row.host}, now: clock.Now}
			got := o.candidate(t.Context(), circuit.Definition{Kind: circuit.Canary, Required: true, Argv: []string{"probe"}})
			want := "fails on an unchanged twin too: exit status 1: " + row.says + row.want
			if row.host.name == fails.name {
				want = "failed before the change too: exit status 1: " + row.says
			}
			if got.Reason != want {
				t.Errorf("%q, want %q", got.Reason, want)
			}
		})
	}
}

// TestSilentCurlIsExplained: with --silent curl leaves only its status, which means
// a connection that failed.
func TestSilentCurlIsExplained(t *testing.T) {
	for _, row := range []struct {
		exit int
		url  string
		want string
	}{
		{7, "http://127.0.0.1:7893/", "; views reach only named ports of this machine: netsandbox circuit add-tcp e LABEL 127.0.0.1:7893"},
		{7, "http://192.0.2.1:7893/", ""},
		{22, "http://127.0.0.1:7893/", ""},
	} {
		no := answer{out: backends.Outcome{Exit: row.exit}}
		o := observer{env: "e", runner: worlds{backends.InCandidate: no, backends.InControl: no, backends.InJail: passes}, now: clock.Now}
		got := o.candidate(t.Context(), circuit.Definition{Kind: circuit.Canary, Required: true, Argv: []string{"/usr/bin/curl", "--silent", row.url}})
		if want := fmt.Sprintf("fails on an unchanged twin too: exit status %d%s", row.exit, row.want); got.Reason != want {
			t.Errorf("%q, want %q", got.Reason, want)
		}
	}
}
