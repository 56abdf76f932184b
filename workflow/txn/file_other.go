//go:build !linux

package txn

import (
	"errors"
	"os"
)

// errReadOnly is never met here.
var errReadOnly = errors.ErrUnsupported

func tryLock(*os.File) error                   { return errors.ErrUnsupported }
func unlock(*os.File) error                    { return errors.ErrUnsupported }
func preallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
func datasync(*os.File) error                  { return errors.ErrUnsupported }
