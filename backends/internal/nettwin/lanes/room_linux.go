package lanes

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// room makes sure that one more lane may be made. The one longest not asked for
// goes, of those that carry nothing: a socket whose mark has lost its rule would
// go on by the host's own table, and one whose mark was given to another lane by
// that lane.
func (l *Lanes) room(w way.Lane) error {
	if len(l.lanes) < capacity {
		return nil
	}
	busy, err := l.busy()
	if err != nil {
		return err
	}
	var oldest *lane
	for _, ln := range l.lanes {
		if ln.open == 0 && !busy[ln.number] && (oldest == nil || ln.used.Before(oldest.used)) {
			oldest = ln
		}
	}
	if oldest == nil || l.now().Sub(oldest.used) < grace {
		return l.limit(way.Load, w, fmt.Sprintf("all %d lanes of the environment are in use", capacity))
	}
	if err := l.unmake(oldest); err != nil {
		return fmt.Errorf("make room for a lane: %w", err)
	}
	return nil
}

// Of the kernel's inet_diag.h, which x/sys lacks.
const (
	diagByFamily = 20 // SOCK_DIAG_BY_FAMILY
	diagRequest  = 56 // sizeof(struct inet_diag_req_v2)
	diagAnswer   = 72 // sizeof(struct inet_diag_msg)
	diagBytecode = 1  // INET_DIAG_REQ_BYTECODE
	diagMark     = 15 // INET_DIAG_MARK
	diagMarkCond = 10 // INET_DIAG_BC_MARK_COND
)

// busy lists the numbers that sockets of the host have as marks. The kernel
// filters: a host with many connections is not read.
func (l *Lanes) busy() (map[uint32]bool, error) {
	k, err := dial(int(l.host.Fd()), unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer k.close()
	numbers := map[uint32]bool{}
	for _, six := range []bool{false, true} {
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			req := make([]byte, diagRequest)
			req[0], req[1] = family(six), proto
			binary.NativeEndian.PutUint32(req[4:], ^uint32(0)) // in whatever state
			req = rtnl.Append(req, diagBytecode, marked(l.claim.block))
			ms, err := k.dump(diagByFamily, req, diagAnswer)
			if err != nil {
				return nil, fmt.Errorf("list sockets of lanes: %w", err)
			}
			for _, m := range ms {
				if v := rtnl.Find(m[diagAnswer:], diagMark); len(v) == 4 {
					numbers[binary.NativeEndian.Uint32(v)&mask] = true
				}
			}
		}
	}
	return numbers, nil
}

// marked is a filter program of one condition: the mark is of the block. An
// operation says how far to go when it holds and when not; past the end means
// that the socket is listed, beyond that that it is not.
func marked(b block) []byte {
	const size = 4 + 8 // struct inet_diag_bc_op, struct inet_diag_markcond
	op := []byte{diagMarkCond, size}
	op = binary.NativeEndian.AppendUint16(op, size+4)
	op = binary.NativeEndian.AppendUint32(op, b.number(0))
	op = binary.NativeEndian.AppendUint32(op, mask&^hopMask)
	return op
}
