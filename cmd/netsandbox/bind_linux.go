package main

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindTo makes a socket leave by one interface; by any where it is empty.
func bindTo(name string) func(network, address string, c syscall.RawConn) error {
	if name == "" {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), name) })
		return errors.Join(err, e)
	}
}
