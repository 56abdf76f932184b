package lease

import (
	"encoding/json"
	"fmt"
	"time"
)

// One packet is one message: a letter, and for some a text after it. The socket
// keeps packets apart, so nothing can be read by halves.
type message byte

const (
	msgArm     message = 'A' // applier: JSON of terms
	msgArmed   message = 'K' // keeper: JSON of report
	msgRefused message = 'E' // keeper: why it cannot keep
	msgRenew   message = 'R' // applier
	msgRenewed message = 'r' // keeper
	msgBroken  message = 'B' // keeper: what broke
	msgUndoing message = 'U' // applier: it began to undo
	msgRelease message = 'D' // applier: the verdict
)

// maxPacket bounds a packet; texts are cut to fit.
const maxPacket = 16 << 10

// terms are what a keeper enforces.
type terms struct {
	TxnPath   string        `json:"txn_path"`
	Bound     time.Duration `json:"bound_ns"`
	ConfirmBy time.Duration `json:"confirm_by_boottime_ns"`
	HardBreak time.Duration `json:"hard_break_ns"`
	Grace     time.Duration `json:"grace_ns"`
}

// report is how a keeper is set up.
type report struct {
	PID   int      `json:"pid"`
	Notes []string `json:"notes,omitempty"` // protections that this machine does not give
}

func packet(m message, text string) []byte {
	b := append([]byte{byte(m)}, text...)
	return b[:min(len(b), maxPacket)]
}

func jsonPacket(m message, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) >= maxPacket {
		return nil, fmt.Errorf("lease message of %d bytes is too long", len(b))
	}
	return packet(m, string(b)), nil
}

func open(b []byte) (message, string) {
	if len(b) == 0 {
		return 0, ""
	}
	return message(b[0]), string(b[1:])
}
