package nettwin

import "testing"

func TestDifferenceReadsLikeACommand(t *testing.T) {
	for _, c := range []struct {
		name string
		d    Difference
		want string
	}{
		{"added", Difference{KindRule, "pref 9 from all blackhole", "", present}, "ip rule add pref 9 from all blackhole"},
		{"deleted", Difference{KindAddress, "192.0.2.2/24 dev eth0", "label eth0:1", ""}, "ip address del 192.0.2.2/24 dev eth0 label eth0:1"},
		{"changed", Difference{KindRoute, "default table main", "via 192.0.2.1", "via 192.0.2.254"}, "ip route replace default table main via 192.0.2.254 (was via 192.0.2.1)"},
		{"a sysctl with tabs", Difference{KindSysctl, "net.ipv4.tcp_rmem", "1\t2\t3", "4\t5\t6"}, `sysctl -w net.ipv4.tcp_rmem="4 5 6" (was "1 2 3")`},
		{"a name that steers a terminal", Difference{KindNFT, "table inet a\x1b[2J\nb", "", present}, `nft add table inet a\x1b[2J\x0ab`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.d.String(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
