package linuxns

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	rtnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var networkChecks = []check{
	{
		name: "network namespace", without: "missing",
		fix: "a kernel with CONFIG_NET_NS, and CAP_NET_ADMIN",
		try: tryNetwork,
	},
	{
		name: "tun", without: "missing",
		fix: "modprobe tun; in a container give it /dev/net/tun",
		try: tryTAP,
	},
	{
		name: "lanes", without: "degraded",
		fix: "Linux 4.17 or later with policy routing for both families" + laneless,
		try: tryLane,
	},
	{
		name: "socket mark", without: "degraded",
		fix: "Linux 5.17 or later" + laneless,
		try: tryMark,
	},
	{
		name: "nft owner", without: "degraded",
		fix: "Linux 5.12 or later with nf_tables; without it `nft flush ruleset` in a view takes its loopback relay away",
		try: tryOwnedTable,
	},
}

// ownNet gives the calling thread a network namespace.
func ownNet() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make a network namespace: %w", err)
	}
	return nil
}

// tryNetwork sets loopback up and routes through it: making a namespace needs
// other rights than changing it.
func tryNetwork(context.Context, string) (string, error) {
	if err := ownNet(); err != nil {
		return "", err
	}
	lo, err := rtnetlink.LinkByName("lo")
	if err != nil {
		return "", fmt.Errorf("find lo: %w", err)
	}
	if err := rtnetlink.LinkSetUp(lo); err != nil {
		return "", fmt.Errorf("set lo up: %w", err)
	}
	dst := &net.IPNet{IP: net.IPv4(192, 0, 2, 0), Mask: net.CIDRMask(24, 32)}
	if err := rtnetlink.RouteAdd(&rtnetlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst}); err != nil {
		return "", fmt.Errorf("add a route: %w", err)
	}
	return "links and routes can be set in it", nil
}

func tryTAP(context.Context, string) (string, error) {
	if err := ownNet(); err != nil {
		return "", err
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open /dev/net/tun: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("tap0")
	if err != nil {
		return "", err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return "", fmt.Errorf("make a TAP: %w", err)
	}
	return "TAP with virtio headers", nil
}

// tryOwnedTable makes a table that belongs to its socket, flushes everything
// from another socket, and looks whether it is still there.
func tryOwnedTable(context.Context, string) (string, error) {
	if err := ownNet(); err != nil {
		return "", err
	}
	owner, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return "", fmt.Errorf("open nf_tables: %w", err)
	}
	defer owner.Close()
	const table = "netsandbox-doctor"
	if err := addOwnedTable(owner, table); err != nil {
		return "", fmt.Errorf("add an owned table: %w", err)
	}
	other, err := nftables.New()
	if err != nil {
		return "", fmt.Errorf("open nf_tables: %w", err)
	}
	other.FlushRuleset()
	if err := other.Flush(); err != nil {
		return "", fmt.Errorf("flush ruleset: %w", err)
	}
	tables, err := other.ListTables()
	if err != nil {
		return "", fmt.Errorf("list tables: %w", err)
	}
	if len(tables) != 1 || tables[0].Name != table {
		return "", errors.New("an owned table does not survive a flush of the ruleset")
	}
	return "an owned table survives a flush of the ruleset", nil
}

// addOwnedTable sends what google/nftables cannot: it leaves the flags zero.
func addOwnedTable(c *netlink.Conn, name string) error {
	const (
		batchBegin = 0x10 // NFNL_MSG_BATCH_BEGIN
		batchEnd   = 0x11 // NFNL_MSG_BATCH_END
		ownerFlag  = 0x2  // NFT_TABLE_F_OWNER, Linux 5.12
	)
	attrs := netlink.NewAttributeEncoder()
	attrs.String(unix.NFTA_TABLE_NAME, name)
	attrs.Bytes(unix.NFTA_TABLE_FLAGS, []byte{0, 0, 0, ownerFlag})
	payload, err := attrs.Encode()
	if err != nil {
		return err
	}
	// struct nfgenmsg: family, version, and the subsystem in network order.
	batch := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	message := append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, payload...)
	kind := netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE)
	_, err = c.SendMessages([]netlink.Message{
		{Header: netlink.Header{Type: batchBegin, Flags: netlink.Request}, Data: batch},
		{Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Create | netlink.Acknowledge}, Data: message},
		{Header: netlink.Header{Type: batchEnd, Flags: netlink.Request}, Data: batch},
	})
	if err != nil {
		return err
	}
	_, err = c.Receive()
	return err
}
