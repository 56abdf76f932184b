package inetdiag

import (
	"net/netip"
	"testing"
)

func TestAccepts(t *testing.T) {
	ap := netip.MustParseAddrPort
	listener := func(local string) Socket { return Socket{State: Listen, Local: ap(local)} }
	v6only := listener("[::]:22")
	v6only.V6Only = true
	onEth1 := listener("0.0.0.0:22")
	onEth1.Ifindex = 3
	for _, tt := range []struct {
		name     string
		listener Socket
		local    string
		ifindex  uint32
		want     bool
	}{
		{"exact address", listener("192.0.2.1:22"), "192.0.2.1:22", 0, true},
		{"another address", listener("192.0.2.1:22"), "192.0.2.2:22", 0, false},
		{"another port", listener("192.0.2.1:22"), "192.0.2.1:23", 0, false},
		{"IPv4 wildcard takes IPv4", listener("0.0.0.0:22"), "192.0.2.1:22", 0, true},
		{"IPv4 wildcard takes no IPv6", listener("0.0.0.0:22"), "[2001:db8::1]:22", 0, false},
		{"IPv6 wildcard takes IPv6", listener("[::]:22"), "[2001:db8::1]:22", 0, true},
		{"dual-stack wildcard takes IPv4", listener("[::]:22"), "192.0.2.1:22", 0, true},
		{"v6only wildcard takes no IPv4", v6only, "192.0.2.1:22", 0, false},
		{"v6only wildcard takes IPv6", v6only, "[2001:db8::1]:22", 0, true},
		{"bound listener, same interface", onEth1, "192.0.2.1:22", 3, true},
		{"bound listener, other interface", onEth1, "192.0.2.1:22", 2, false},
		{"bound listener, unbound connection", onEth1, "192.0.2.1:22", 0, true},
		{"an established socket listens to nothing", Socket{State: Established, Local: ap("192.0.2.1:22")}, "192.0.2.1:22", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Socket{State: Established, Local: ap(tt.local), Ifindex: tt.ifindex}
			if got := tt.listener.Accepts(c); got != tt.want {
				t.Errorf("Accepts = %v, want %v", got, tt.want)
			}
		})
	}
}
