package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// headerSize is the size of struct nfgenmsg, which begins every message.
const headerSize = 4

// message makes one nf_tables message: family and attributes.
func message(typ, flags int, fam byte, attrs func(*netlink.AttributeEncoder)) (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	if attrs != nil {
		attrs(ae)
	}
	b, err := ae.Encode()
	if err != nil {
		return netlink.Message{}, err
	}
	return netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ),
			Flags: netlink.Request | netlink.HeaderFlags(flags),
		},
		Data: append([]byte{fam, unix.NFNETLINK_V0, 0, 0}, b...),
	}, nil
}

// batchTime bounds the wait for the kernel's answers to one batch.
const batchTime = 5 * time.Second

// batch sends messages as one transaction: all of them or none.
func batch(c *netlink.Conn, ms []netlink.Message) error {
	edge := func(typ netlink.HeaderType) netlink.Message {
		return netlink.Message{
			Header: netlink.Header{Type: typ, Flags: netlink.Request},
			Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}, // res_id is big-endian
		}
	}
	out := []netlink.Message{edge(unix.NFNL_MSG_BATCH_BEGIN)}
	for _, m := range ms {
		m.Header.Flags |= netlink.Acknowledge
		out = append(out, m)
	}
	out = append(out, edge(unix.NFNL_MSG_BATCH_END))
	if err := c.SetDeadline(time.Now().Add(batchTime)); err != nil {
		return err
	}
	if _, err := c.SendMessages(out); err != nil {
		return fmt.Errorf("send nftables batch: %w", err)
	}
	// Every message is answered, also those beside one that fails.
	var first error
	for range ms {
		if _, err := c.Receive(); err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		return fmt.Errorf("commit nftables batch: %w", errno(first))
	}
	return nil
}

func errno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}
