package relay

import "net/netip"

// LoopKind says what a socket is for that the twin hands over: how the packets
// that it takes came to be sent to the twin itself.
type LoopKind string

// The kinds of socket. Streams are accepted and datagrams received by transparent
// sockets, so their local address is the destination as the twin's nat left it.
const (
	LoopStreams         LoopKind = "streams"
	LoopDatagrams       LoopKind = "datagrams"
	TranslatedStreams   LoopKind = "translated streams" // nat in the twin made the destination a local one
	TranslatedDatagrams LoopKind = "translated datagrams"
	DivertedStreams     LoopKind = "diverted streams" // routed to lo with a foreign destination
	DivertedDatagrams   LoopKind = "diverted datagrams"
	LoopAnswers         LoopKind = "answers"   // a raw socket in the twin
	LoopQuestions       LoopKind = "questions" // our end of a [LoopQuestion] conversation
)

// LoopQuestion is what the relay asks about one flow. The kernel answers it to
// nobody but CAP_NET_ADMIN, which the relay must not have.
type LoopQuestion struct {
	What  LoopAsk        `json:"what"`
	Proto uint8          `json:"proto"`
	Src   netip.AddrPort `json:"src"`
	Dst   netip.AddrPort `json:"dst"`
}

// LoopAsk names a question.
type LoopAsk string

// The questions.
const (
	LoopOriginal  LoopAsk = "original"  // in the twin: where did Src send what arrived at Dst?
	LoopTreatment LoopAsk = "treatment" // on the host: where did what Src sent to Dst go?
	LoopPeer      LoopAsk = "peer"      // on the host: is there a socket with the address Dst that is connected to Src?
)

// LoopAnswer is the answer to one question.
type LoopAnswer struct {
	To    netip.AddrPort `json:"to,omitzero"`
	There bool           `json:"there,omitempty"`
	Err   string         `json:"err,omitempty"`
}
