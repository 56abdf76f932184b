package workflow

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

// nameTime bounds the look-up of a name that may be this machine's. It only
// decides whether a port is opened to views, so it may give up.
const nameTime = 2 * time.Second

// sshPort is never opened to a view because something named it: a shell on the
// host is a way out of the view. Only --relay 22 does.
const sshPort = 22

// ownPort returns the port of "host:port" when host is this machine: its loopback,
// one of its addresses, or a name of either.
func ownPort(ctx context.Context, hostport string) (uint16, bool) {
	host, port, err := net.SplitHostPort(hostport)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" {
		return 0, false
	}
	return uint16(n), ownHost(ctx, host)
}

func ownHost(ctx context.Context, host string) bool {
	if host == "localhost" { // whether or not any resolver knows
		return true
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return ownAddr(a)
	}
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if ownAddr(a) {
			return true
		}
	}
	return false
}

// ownAddr reports whether a is loopback, or on an interface of the host.
func ownAddr(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, own := range all {
		if p, err := netip.ParsePrefix(own.String()); err == nil && p.Addr() == a {
			return true
		}
	}
	return false
}

// proxyPorts returns the ports of this machine that proxy variables name: an
// agent behind a local proxy has no other way out, so the twin must have it too.
func proxyPorts(ctx context.Context, environ []string) []uint16 {
	var out []uint16
	asked := make(map[string]bool) // most name one proxy several times
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch strings.ToLower(name) {
		case "http_proxy", "https_proxy", "all_proxy", "ftp_proxy":
		default:
			continue
		}
		if !strings.Contains(value, "://") {
			value = "http://" + value
		}
		u, err := url.Parse(value)
		if err != nil || asked[u.Host] {
			continue
		}
		asked[u.Host] = true
		if port, ok := ownPort(ctx, u.Host); ok && port != sshPort {
			out = append(out, port)
		}
	}
	return out
}

// endpoint finds what programs say that they could not connect to: "127.0.0.1:80",
// "[::1]:80", "localhost port 80".
var endpoint = regexp.MustCompile(`([0-9A-Za-z.:%]+|\[[0-9A-Fa-f:.%]+\])(?::| port )([0-9]{1,5})\b`)

// unnamed says how a view gets to a service of this machine, when that is what a
// probe missed there although the host answers: only ports that were named are
// open to views. Names are not asked for, this explains and does not decide.
func unnamed(env string, d circuit.Definition, reason string) string {
	said := reason
	switch {
	case strings.Contains(reason, "refused"):
	case strings.Contains(reason, "connect to server"): // what curl makes of it since 7.88
	case len(d.Argv) > 0 && path.Base(d.Argv[0]) == "curl" && strings.HasSuffix(reason, "exit status 7"):
		said = strings.Join(d.Argv, " ") // with --silent the status is all it says
	default:
		return ""
	}
	for _, m := range append(endpoint.FindAllStringSubmatch(said, -1), endpoint.FindStringSubmatch(d.Address)) {
		if m == nil {
			continue
		}
		host := strings.Trim(m[1], "[]")
		a, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !ownAddr(a)) {
			continue
		}
		how := fmt.Sprintf("circuit add-tcp %s LABEL %s", env, net.JoinHostPort(host, m[2]))
		if m[2] == strconv.Itoa(sshPort) {
			how = "create NAME --relay " + m[2]
		}
		return fmt.Sprintf("; views reach only named ports of this machine: netsandbox %s", how)
	}
	return ""
}
