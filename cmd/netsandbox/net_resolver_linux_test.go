package main

import (
	"errors"
	"net"
	"net/netip"
)

// labResolve is a name server that knows one IPv4 address for every name: `lab
// resolve 127.0.0.53:53 192.0.2.80`.
func labResolve(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: lab resolve ADDR ANSWER")
	}
	answer, err := netip.ParseAddr(args[1])
	if err != nil {
		return err
	}
	c, err := net.ListenPacket("udp", args[0])
	if err != nil {
		return err
	}
	return eachPacket(c, func(query []byte, _ net.Addr) []byte { return resolved(query, answer.As4()) })
}

// resolved answers the one question of a query (RFC 1035, section 4): with the
// address when it asks for one of IPv4, with nothing otherwise.
func resolved(query []byte, answer [4]byte) []byte {
	const header = 12
	end := header
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5 // the root, type and class
	if end > len(query) {
		return nil
	}
	r := append([]byte{}, query[:end]...)
	r[2], r[3] = r[2]|0x80, 0x80                            // an answer, recursion available
	r[6], r[7], r[8], r[9], r[10], r[11] = 0, 0, 0, 0, 0, 0 // counts of the other sections
	if typ := int(query[end-4])<<8 | int(query[end-3]); typ == 1 {
		r[7] = 1
		r = append(r, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4) // the question's name, A, IN, 1 s, 4 bytes
		r = append(r, answer[:]...)
	}
	return r
}
