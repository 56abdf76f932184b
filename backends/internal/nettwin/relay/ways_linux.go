package relay

import (
	"net/netip"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// waysFD is the descriptor on which the relay asks the twin to make the host go
// a way (SOCK_SEQPACKET, one JSON question or answer a packet). Questions carry a
// number, many are open at once, answers come in any order.
const waysFD = 4

// Bounds of that conversation. The side of the twin holds to them whatever the
// relay does.
const (
	maxAsk      = 4 << 10                  // bytes of a question or an answer
	maxAsks     = 64                       // questions open at once
	maxAdmitted = maxStreams + maxUDPFlows // flows at once on lanes
	asksBurst   = 8192                     // questions before they are paced
	asksRate    = 4096                     // a second, when paced
)

// ask is one question of the relay. Exactly one of the pointers is set.
type ask struct {
	ID   uint64    `json:"id"`
	Lane *way.Lane `json:"lane,omitempty"`
	// Admit comes with the socket of the flow: who may let packets in could let in
	// those of others, so the address is read from the socket and not believed.
	Admit      *way.Flow `json:"admit,omitempty"`
	Release    *way.Flow `json:"release,omitempty"`
	Translated *way.Flow `json:"translated,omitempty"`
}

// told is the answer.
type told struct {
	ID    uint64         `json:"id"`
	Mark  uint32         `json:"mark,omitempty"`
	Held  bool           `json:"held,omitempty"` // see [way.Holder]
	To    netip.AddrPort `json:"to,omitzero"`
	Limit *way.Limit     `json:"limit,omitempty"`
	Err   string         `json:"err,omitempty"`
}
