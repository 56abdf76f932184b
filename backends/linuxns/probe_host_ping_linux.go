package linuxns

import (
	"fmt"

	"github.com/netsandbox/netsandbox/backends"
)

// pingGroups looks whether the process that carries a twin's traffic may have
// ICMP sockets. It has group 0 and no right to raw ones; the setting is for both
// families (icmp(7)).
func pingGroups(*hostNet) (backends.Finding, error) {
	s, err := sysctl("ipv4/ping_group_range")
	if err != nil {
		return backends.Finding{}, err
	}
	var low, high uint32
	if _, err := fmt.Sscan(s, &low, &high); err != nil {
		return backends.Finding{}, fmt.Errorf("read ping_group_range %q: %w", s, err)
	}
	if low > 0 || high < low {
		return lesser("sysctl -w net.ipv4.ping_group_range='0 0', or circuits that do without ping",
			"net.ipv4.ping_group_range %d %d leaves out group 0: echo requests from a view are not carried", low, high)
	}
	return fine("echo requests from a view are carried")
}
