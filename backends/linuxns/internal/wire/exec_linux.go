package wire

import (
	"bytes"
	"errors"
)

// Boot is the first frame on the socket of a view's PID 1, from its holder.
type Boot struct {
	Mode string `json:"mode"`
	// Canary ends PID 1's own powers before it serves: no_new_privs and an empty
	// bounding set, so nothing run there ever holds a capability.
	Canary bool `json:"canary,omitempty"`
	// Scope cuts abstract Unix sockets of the outside, for a view that shares the
	// host's network namespace.
	Scope bool `json:"scope,omitempty"`
	// Name is given to commands as NETSANDBOX_ENV.
	Name string `json:"name"`
}

// Caller goes from holder to PID 1 together with a client's connection.
type Caller struct {
	PID    int      `json:"pid"`
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Limits is how many resource limits Linux has (RLIM_NLIMITS).
const Limits = 16

// Limit is one resource limit.
type Limit struct {
	Cur uint64 `json:"cur"`
	Max uint64 `json:"max"`
}

// Start is a client's request; argv, environment and working directory are in
// the body because they need not be text. Descriptors go along for those of
// 0, 1 and 2 that are not a terminal, in order.
type Start struct {
	Argc   int     `json:"argc"`
	Envc   int     `json:"envc"`
	TTY    [3]bool `json:"tty"`
	Rows   uint16  `json:"rows,omitempty"`
	Cols   uint16  `json:"cols,omitempty"`
	Umask  int     `json:"umask"`
	Detach bool    `json:"detach,omitempty"`
	Limits []Limit `json:"limits"` // index is the resource number
}

// Event goes from PID 1 to the client. Accepted comes first, before anything is
// run: a client that has not seen it may send its command again. A client that
// detaches or has a terminal then gets Started, with the terminal's master. What
// comes last is Exited, or why the command was not started.
type Event struct {
	Accepted bool `json:"accepted,omitempty"`
	Started  bool `json:"started,omitempty"`
	Exited   bool `json:"exited,omitempty"`
	Exit     int  `json:"exit,omitempty"`
	Signal   int  `json:"signal,omitempty"`
	// Status is 125, 126 or 127 when the command was not started, Error why.
	Status int    `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Control goes from client to PID 1 while the command runs.
type Control struct {
	Signal int `json:"signal"`
}

// Strings packs argv, environment and directory for the body of a Start. None
// of them can hold a NUL byte.
func Strings(lists ...[]string) []byte {
	var b []byte
	for _, l := range lists {
		for _, s := range l {
			b = append(append(b, s...), 0)
		}
	}
	return b
}

// Unpack splits the body of s into argv, environment and working directory.
func (s Start) Unpack(body []byte) (argv, env []string, cwd string, err error) {
	parts := bytes.Split(body, []byte{0})
	if s.Argc < 1 || s.Envc < 0 || len(parts) != s.Argc+s.Envc+2 || len(parts[len(parts)-1]) != 0 {
		return nil, nil, "", errors.New("malformed start request")
	}
	all := make([]string, 0, len(parts))
	for _, p := range parts {
		all = append(all, string(p))
	}
	return all[:s.Argc], all[s.Argc : s.Argc+s.Envc], all[s.Argc+s.Envc], nil
}
