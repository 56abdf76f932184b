package faultfs

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The part of the FUSE protocol (linux/fuse.h, version 7.31) that a filesystem
// with one file needs. Numbers are in host order.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42

	inHeader  = 40
	outHeader = 16
	maxWrite  = 1 << 20

	flagBigWrites = 1 << 5
	flagMaxPages  = 1 << 22
	openDirect    = 1 << 0 // FOPEN_DIRECT_IO: no cache between us and the device

	rootNode  = 1
	imageNode = 2
	imageName = "image"
)

var order = binary.NativeEndian

// serveFUSE answers requests until the connection ends, which it does when the
// device and with it the mount is gone.
func serveFUSE(fd int, d *device, size uint64) error {
	buf := make([]byte, inHeader+4096+maxWrite)
	for {
		n, err := unix.Read(fd, buf)
		switch err {
		case nil:
		case unix.EINTR, unix.EAGAIN, unix.ENOENT: // the last: it was interrupted
			continue
		case unix.ENODEV, unix.ECONNABORTED:
			return nil
		default:
			return err
		}
		if err := answer(fd, buf[:n], d, size); err != nil && err != unix.ENOENT {
			return err
		}
	}
}

// answer handles one request.
func answer(fd int, req []byte, d *device, size uint64) error {
	op, unique, node := order.Uint32(req[4:]), order.Uint64(req[8:]), order.Uint64(req[16:])
	in := req[inHeader:]
	var out []byte
	var e unix.Errno
	switch op {
	case opForget, opBatchForget, opInterrupt:
		return nil // have no answer
	case opInit:
		out = make([]byte, 64)
		for i, v := range []uint32{7, 31, 0, flagBigWrites | flagMaxPages, 0, maxWrite, 1} {
			order.PutUint32(out[4*i:], v)
		}
		order.PutUint16(out[28:], maxWrite/4096)
	case opLookup:
		if string(in) != imageName+"\x00" {
			e = unix.ENOENT
			break
		}
		out = make([]byte, 40)
		order.PutUint64(out, imageNode)
		out = append(out, attr(imageNode, size)...)
	case opGetattr, opSetattr:
		out = append(make([]byte, 16), attr(node, size)...)
	case opOpen:
		out = make([]byte, 16)
		order.PutUint32(out[8:], openDirect)
	case opRead:
		out = make([]byte, order.Uint32(in[16:]))
		var n int
		n, e = d.read(out, int64(order.Uint64(in[8:])))
		out = out[:n]
	case opWrite:
		n := order.Uint32(in[16:])
		e = d.write(in[40:40+n], int64(order.Uint64(in[8:])))
		out = make([]byte, 8)
		order.PutUint32(out, n)
	case opFsync:
		e = d.flush()
	case opStatfs:
		out = make([]byte, 80)
	case opRelease, opFlush, opDestroy:
	default:
		e = unix.ENOSYS
	}
	if e != 0 {
		out = nil
	}
	return reply(fd, unique, e, out)
}

func reply(fd int, unique uint64, e unix.Errno, out []byte) error {
	head := make([]byte, outHeader)
	order.PutUint32(head, uint32(outHeader+len(out)))
	order.PutUint32(head[4:], uint32(-int32(e)))
	order.PutUint64(head[8:], unique)
	_, err := unix.Write(fd, append(head, out...))
	return err
}

// attr is struct fuse_attr.
func attr(node, size uint64) []byte {
	b := make([]byte, 88)
	mode := uint32(unix.S_IFREG | 0o600)
	if node == rootNode {
		mode, size = unix.S_IFDIR|0o700, 0
	}
	order.PutUint64(b, node)
	order.PutUint64(b[8:], size)
	order.PutUint64(b[16:], size/512)
	order.PutUint32(b[60:], mode)
	order.PutUint32(b[64:], 1) // links
	order.PutUint32(b[80:], 4096)
	return b
}
