package nft

import (
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Flush deletes every table of the namespace ns that has no owner. A kernel
// without nf_tables has none.
func Flush(ns int) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns})
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dial nf_tables: %w", err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(batchTime)); err != nil {
		return err
	}
	// A deletion that names no table is what "flush ruleset" sends.
	m, err := message(unix.NFT_MSG_DELTABLE, 0, unix.NFPROTO_UNSPEC, nil)
	if err != nil {
		return err
	}
	if err := batch(c, []netlink.Message{m}); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("flush ruleset: %w", err)
	}
	return nil
}
