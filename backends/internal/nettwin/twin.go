package nettwin

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/relay"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// ErrRelayGone is returned when the relay process of a twin has died.
var ErrRelayGone = errors.New("relay process is gone")

// Options says how a twin is made.
type Options struct {
	// Relay lists ports of TCP and UDP on the host's loopback, and on its own
	// addresses, that are reachable from the twin. Port 22 only ever comes from here.
	Relay []uint16
	// Resolvers lists loopback name servers whose port 53 is reachable from the
	// twin. Nil: those that ResolvConf names.
	Resolvers []netip.Addr
	// ResolvConf is read when Resolvers is nil. Empty: /etc/resolv.conf.
	ResolvConf string
	// Cut makes a twin without a way out: every flow is answered with silence.
	Cut bool
	// Unrecorded makes a twin that is thrown away before anybody asks what was
	// changed in it, as a control view's: the baseline is not read.
	Unrecorded bool
	// IDShift is the kernel's id of user 0 of the user namespace that owns the
	// twin; 0 when that is the host's own. Policy rules for users are moved by it.
	IDShift uint32
	// Ways makes the host go ways that it does not use itself. Nil: such a flow is
	// not carried, and counts as a limit.
	Ways way.Keeper
	// Exe is the program that becomes the relay when it is started with
	// [relay.Argv0] as its argv[0]. Empty: the running one.
	Exe string
	// Stderr receives the relay's last words. Nil: discarded.
	Stderr io.Writer

	idle *relay.Idle // nil: as conntrack; tests have less time
}

// Status is the liveness of a twin.
type Status struct {
	Relay int  // pid of the relay process, 0 when it is gone
	Cut   bool // made without a way out
	// Err says why the relay ended.
	Err string
	// Released lists relayed ports that something inside the twin took over.
	Released []uint16
}

// Kind names a family of differences.
type Kind string

// The kinds of difference, in the order in which they are listed.
const (
	KindLink     Kind = "link"
	KindAddress  Kind = "address"
	KindLabel    Kind = "label" // of IPv6 source address selection
	KindNexthop  Kind = "nexthop"
	KindRoute    Kind = "route"
	KindRule     Kind = "rule"
	KindNeighbor Kind = "neighbour"
	KindNFT      Kind = "nft"
	KindXtables  Kind = "xtables"
	KindSysctl   Kind = "sysctl"
	KindQdisc    Kind = "qdisc"
	KindIPsec    Kind = "ipsec"
)

// kinds fixes the order.
var kinds = []Kind{
	KindLink, KindAddress, KindLabel, KindNexthop, KindRoute, KindRule, KindNeighbor,
	KindNFT, KindXtables, KindSysctl, KindQdisc, KindIPsec,
}

// Difference is one thing that the inside changed since the twin was made.
type Difference struct {
	Kind Kind
	Key  string // identity: "eth0", "inet default table main metric 100", …
	Was  string // "" when it did not exist
	Now  string // "" when it is gone
}

// verbs are the words of iproute2, tc and nft for what a kind can suffer.
var verbs = map[Kind]struct{ noun, add, del, change string }{
	KindLink:     {"ip link", "add", "del", "set"},
	KindAddress:  {"ip address", "add", "del", "change"},
	KindLabel:    {"ip addrlabel", "add", "del", "change"},
	KindNexthop:  {"ip nexthop", "add", "del", "replace"},
	KindRoute:    {"ip route", "add", "del", "replace"},
	KindRule:     {"ip rule", "add", "del", "change"},
	KindNeighbor: {"ip neigh", "add", "del", "replace"},
	KindNFT:      {"nft", "add", "delete", "replace"},
	KindXtables:  {"xtables", "add", "delete", "replace"},
	KindQdisc:    {"tc qdisc", "add", "del", "replace"},
	KindIPsec:    {"ip xfrm", "add", "delete", "update"},
}

// String renders the difference as the command an administrator would type, on
// one line that is safe to print: the kernel takes names with control bytes.
func (d Difference) String() string { return change.Escape(d.command()) }

func (d Difference) command() string {
	if d.Kind == KindSysctl {
		flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
		return fmt.Sprintf(`sysctl -w %s="%s" (was "%s")`, d.Key, flat(d.Now), flat(d.Was))
	}
	v := verbs[d.Kind]
	switch {
	case d.Was == "":
		return join(v.noun, v.add, d.Key, d.Now)
	case d.Now == "":
		return join(v.noun, v.del, d.Key, d.Was)
	default:
		return join(v.noun, v.change, d.Key, d.Now) + " (was " + d.Was + ")"
	}
}

func join(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" || w == present }), " ")
}

// present is the value of a thing that has an identity and nothing else.
const present = "present"
