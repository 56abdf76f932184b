// Package hostlock lets one trial at a time touch the host, whatever state
// directory it comes from.
//
// Two locks make it one. An abstract unix socket is bound to a fixed name in the
// host's network namespace; connecting to it tells who has the lock. It vanishes
// with its holders, whatever kills them. And because a process in another network
// namespace, a container with the host's files for one, does not see that name,
// the top directory of every filesystem that the trial writes to, or its base
// where that is lower, is locked with flock(2) as well.
//
// The keeper inherits both: when the applier dies, the lock lasts until the host
// is undone. See [Lock.Files] and [Adopt].
//
// Anybody on the machine can bind an abstract name or lock a directory. All
// they get is that a trial is refused, naming the process that is in the way.
package hostlock

import (
	"errors"
	"fmt"

	"github.com/netsandbox/netsandbox/backends/change"
)

// ErrBusy is what every [BusyError] is.
var ErrBusy = errors.New("another trial is on this host")

// Holder is who has the lock.
type Holder struct {
	PID int    `json:"pid"`
	UID uint32 `json:"uid"` // as the kernel says, not as the holder says
	Env string `json:"env"`
	Txn string `json:"txn,omitempty"`
	// Base is below which the trial writes; empty for "/".
	Base string `json:"base,omitempty"`
}

// BusyError names the holder.
type BusyError struct {
	Holder Holder
	// Filesystem is the mount whose directory is locked, when the socket is not
	// visible from here.
	Filesystem string
}

// Error names what is known of the holder.
func (e *BusyError) Error() string {
	h := e.Holder
	switch {
	case h.Txn != "":
		return fmt.Sprintf("%v: %s of environment %s (pid %d)", ErrBusy, change.Escape(h.Txn), change.Escape(h.Env), h.PID)
	case h.Env != "":
		return fmt.Sprintf("%v: environment %s (pid %d)", ErrBusy, change.Escape(h.Env), h.PID)
	case e.Filesystem != "":
		return fmt.Sprintf("%v: the filesystem at %s is locked", ErrBusy, change.Escape(e.Filesystem))
	case h.PID != 0:
		return fmt.Sprintf("%v: pid %d of uid %d has its lock", ErrBusy, h.PID, h.UID)
	}
	return ErrBusy.Error()
}

// Unwrap makes it [ErrBusy].
func (e *BusyError) Unwrap() error { return ErrBusy }
