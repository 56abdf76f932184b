package nettwin

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// dockerNFT are the rules that dockerd puts into a container's namespace, as it
// writes them for nftables. Nothing listens on port 53.
const dockerNFT = `table ip docker {
	chain out {
		type nat hook output priority -100;
		ip daddr 127.0.0.11 udp dport 53 counter dnat to 127.0.0.11:47011;
		ip daddr 127.0.0.11 tcp dport 53 counter dnat to 127.0.0.11:39559;
	};
	chain post {
		type nat hook postrouting priority 100;
		ip saddr 127.0.0.11 udp sport 47011 counter snat to :53;
		ip saddr 127.0.0.11 tcp sport 39559 counter snat to :53;
	};
};`

// dockerIPTables are the same for iptables.
const dockerIPTables = `-N DOCKER_OUTPUT
-N DOCKER_POSTROUTING
-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
-A POSTROUTING -d 127.0.0.11/32 -j DOCKER_POSTROUTING
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:39559
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:47011
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p tcp -m tcp --sport 39559 -j SNAT --to-source :53
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p udp -m udp --sport 47011 -j SNAT --to-source :53`

func dockerRules(t *testing.T, n *netlab.Node, tool string) {
	t.Helper()
	nstest.Require(t, nstest.Tool(tool))
	if tool == "nft" {
		load(t, n, dockerNFT)
		return
	}
	for rule := range strings.Lines(dockerIPTables) {
		_, err := n.Run(t.Context(), append([]string{tool, "-w", "-t", "nat"}, strings.Fields(rule)...)...)
		must(t, err)
	}
}

// TestDockerResolver mirrors a host that is a container: its name server is an
// address of loopback where nat leads to a port that dockerd chose.
func TestDockerResolver(t *testing.T) {
	for _, tool := range []string{"nft", "iptables-nft", "iptables-legacy"} {
		t.Run(tool, func(t *testing.T) {
			l := newLab(t, nstest.NFT)
			dockerRules(t, l.host, tool)
			says(t, l.host, "127.0.0.11:47011", "docker")
			greet(t, l.host, "127.0.0.11:39559", "docker")
			conf := t.TempDir() + "/resolv.conf"
			must(t, os.WriteFile(conf, []byte("nameserver 127.0.0.11\noptions ndots:0\n"), 0o600))
			l.mirror(t, Options{ResolvConf: conf, Ways: newNATTeller(t, l.host)})
			for range 3 {
				if got, err := l.datagram("127.0.0.11:53", "q"); got != "docker q" || err != nil {
					t.Errorf("udp: got %q, %v", got, err)
				}
			}
			if got, err := l.ask("127.0.0.11:53"); got != "docker" || err != nil {
				t.Errorf("tcp: got %q, %v", got, err)
			}
			l.wantNoLimit(t)
			if got, err := l.ask("127.0.0.11:39559"); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("the port behind nat, which is not relayed: got %q, %v; want connection refused", got, err)
			}
		})
	}
}

// TestDockerResolverWithoutItsRules flushes them inside: in a container that ends
// name resolution, so it does inside.
func TestDockerResolverWithoutItsRules(t *testing.T) {
	l := newLab(t, nstest.NFT)
	dockerRules(t, l.host, "nft")
	says(t, l.host, "127.0.0.11:47011", "docker")
	greet(t, l.host, "127.0.0.11:39559", "docker")
	conf := t.TempDir() + "/resolv.conf"
	must(t, os.WriteFile(conf, []byte("nameserver 127.0.0.11\n"), 0o600))
	l.mirror(t, Options{ResolvConf: conf, Ways: newNATTeller(t, l.host)})
	load(t, l.inside, "flush ruleset")
	if got, err := l.datagram("127.0.0.11:53", "q"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("udp: got %q, %v; want connection refused", got, err)
	}
	if got, err := l.ask("127.0.0.11:53"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("tcp: got %q, %v; want connection refused", got, err)
	}
	l.wantNoLimit(t)
}
