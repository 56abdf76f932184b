package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// Of the kernel's inet_diag.h, which x/sys lacks.
const (
	reqBytecode = 1  // INET_DIAG_REQ_BYTECODE
	attrMark    = 15 // INET_DIAG_MARK
	markCond    = 10 // INET_DIAG_BC_MARK_COND
)

// Marks lists the marks (SO_MARK) of TCP and UDP sockets, whatever their state, of
// which the bits in mask are as in value. The kernel filters: a host with many
// connections is not read.
func (c *Conn) Marks(value, mask uint32) (map[uint32]bool, error) {
	marks := map[uint32]bool{}
	for _, af := range []uint8{unix.AF_INET, unix.AF_INET6} {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			req := make([]byte, sizeofReq)
			req[0], req[1] = af, proto
			binary.NativeEndian.PutUint32(req[4:], everyState)
			ms, err := c.c.Execute(netlink.Message{
				Header: netlink.Header{Type: byFamily, Flags: netlink.Request | netlink.Dump},
				Data:   rtnl.Append(req, reqBytecode, marked(value, mask)),
			})
			if errors.Is(err, unix.ENOENT) { // the kernel lists no such sockets
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list marked sockets: %w", err)
			}
			for _, m := range ms {
				if len(m.Data) < sizeofMsg {
					continue
				}
				if v := rtnl.Find(m.Data[sizeofMsg:], attrMark); len(v) == 4 {
					marks[binary.NativeEndian.Uint32(v)] = true
				}
			}
		}
	}
	return marks, nil
}

// marked is a filter program of one condition. An operation says how far to go
// when it holds and when not; past the end means that the socket is listed, beyond
// that that it is not.
func marked(value, mask uint32) []byte {
	const size = 4 + 8 // struct inet_diag_bc_op, struct inet_diag_markcond
	op := []byte{markCond, size}
	op = binary.NativeEndian.AppendUint16(op, size+4)
	op = binary.NativeEndian.AppendUint32(op, value)
	return binary.NativeEndian.AppendUint32(op, mask)
}
