//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// bindTo is not available here.
func bindTo(name string) func(network, address string, c syscall.RawConn) error {
	if name == "" {
		return nil
	}
	return func(string, string, syscall.RawConn) error { return errors.ErrUnsupported }
}
