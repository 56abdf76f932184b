package canary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// maxOutput is what is kept of a probe's output; the rest is read and
// forgotten, so that a talkative program still comes to its end.
const maxOutput = 4 << 10

// job is a probe on its way to PID 1. Arguments are bytes: they need not be
// text, and JSON would replace what is not.
type job struct {
	Argv      [][]byte      `json:"argv,omitempty"`
	Env       [][]byte      `json:"env,omitempty"`
	Login     bool          `json:"login,omitempty"`
	Cwd       []byte        `json:"cwd,omitempty"`
	UID       uint32        `json:"uid"`
	GID       uint32        `json:"gid"`
	Groups    []uint32      `json:"groups,omitempty"`
	Dial      string        `json:"dial,omitempty"`
	Interface string        `json:"interface,omitempty"`
	Timeout   time.Duration `json:"timeout"`
	Watch     bool          `json:"watch,omitempty"` // for echo sockets
}

// Pack encodes a probe for a socket, byte for byte; [Unpack] is its inverse.
func Pack(p backends.Probe) []byte {
	b, err := json.Marshal(newJob(p))
	if err != nil { // strings, numbers and bytes only
		panic(err)
	}
	return b
}

// Unpack decodes what [Pack] made.
func Unpack(b []byte) (backends.Probe, error) {
	var j job
	if err := json.Unmarshal(b, &j); err != nil {
		return backends.Probe{}, fmt.Errorf("decode probe: %w", err)
	}
	return backends.Probe{
		Argv: unpack(j.Argv), Env: unpack(j.Env), Login: j.Login, Cwd: string(j.Cwd),
		UID: j.UID, GID: j.GID, Groups: j.Groups,
		Dial: j.Dial, Interface: j.Interface, Timeout: j.Timeout,
	}, nil
}

func newJob(p backends.Probe) job {
	return job{
		Argv: pack(p.Argv), Env: pack(p.Env), Login: p.Login, Cwd: []byte(p.Cwd),
		UID: p.UID, GID: p.GID, Groups: p.Groups,
		Dial: p.Dial, Interface: p.Interface, Timeout: p.Timeout,
	}
}

// report is the answer of PID 1.
type report struct {
	Exit     int           `json:"exit"`
	Signal   int           `json:"signal,omitempty"`
	TimedOut bool          `json:"timed_out,omitempty"`
	Output   []byte        `json:"output,omitempty"`
	Err      string        `json:"err,omitempty"`
	Took     time.Duration `json:"took"`
	Asked    Asked         `json:"asked"`
}

// Asked says what a command asked for that the host gives some and a canary none.
type Asked struct {
	Ping bool `json:"ping,omitempty"` // ping sockets, icmp(7)
	Raw  bool `json:"raw,omitempty"`  // raw or packet sockets
}

// ErrNoReport: PID 1 of the canary ended without an answer. The probe may have
// ended it, so it is the probe's failure and not the machine's.
var ErrNoReport = errors.New("the canary ended without an answer")

// Ask sends the probe to a canary's PID 1 and waits for the answer. Nothing in
// it is trusted to be short, complete or printable. With watch, what the command
// asked for is told.
func Ask(c *wire.Conn, p backends.Probe, watch bool) (backends.Outcome, Asked, error) {
	var rep report
	j := newJob(p)
	j.Watch = watch
	err := c.Send(j, nil)
	if err == nil {
		var fds []int
		_, fds, err = c.Recv(&rep)
		wire.CloseAll(fds)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return backends.Outcome{}, Asked{}, ErrNoReport
	case err != nil:
		return backends.Outcome{}, Asked{}, fmt.Errorf("ask canary: %w", err)
	}
	return backends.Outcome{
		Exit: rep.Exit, Signal: rep.Signal, TimedOut: rep.TimedOut, Took: rep.Took,
		Output: change.Escape(string(rep.Output[:min(len(rep.Output), maxOutput)])),
		Err:    change.Escape(rep.Err[:min(len(rep.Err), maxOutput)]),
	}, rep.Asked, nil
}

func pack(words []string) [][]byte {
	var b [][]byte
	for _, w := range words {
		b = append(b, []byte(w))
	}
	return b
}

func unpack(words [][]byte) []string {
	var s []string
	for _, w := range words {
		s = append(s, string(w))
	}
	return s
}
