//go:build !linux

package relay

import (
	"errors"
	"fmt"
	"os"
)

// Main is not supported here.
func Main() {
	fmt.Fprintln(os.Stderr, "netsandbox-relay:", errors.ErrUnsupported)
	os.Exit(1)
}
