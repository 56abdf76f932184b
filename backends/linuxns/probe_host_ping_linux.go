package linuxns

import (
	"fmt"

	"github.com/netsandbox/netsandbox/backends"
)

// pingGroups says how echo requests of a view leave. The process that carries them
// has group 0, and uses raw sockets where the host gives that group no ping sockets
// (icmp(7); the setting is for both families).
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
		return fine("carried by raw sockets: net.ipv4.ping_group_range is %d %d and leaves out group 0", low, high)
	}
	return fine("carried by ping sockets")
}
