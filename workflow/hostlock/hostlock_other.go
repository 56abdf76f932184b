//go:build !linux

package hostlock

import (
	"errors"
	"os"
)

// Lock is not available here.
type Lock struct{}

// Take is not available here.
func Take(Holder, ...string) (*Lock, error) { return nil, errors.ErrUnsupported }

// Adopt is not available here.
func Adopt(Holder, []*os.File) (*Lock, error) { return nil, errors.ErrUnsupported }

// Files is not available here.
func (*Lock) Files() []*os.File { return nil }

// Describe is not available here.
func (*Lock) Describe(Holder) error { return errors.ErrUnsupported }

// Close is not available here.
func (*Lock) Close() error { return errors.ErrUnsupported }
