package relay

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
)

// MAC is an Ethernet address.
type MAC [6]byte

// The first three bytes of every MAC handed out: locally administered, unicast.
var macPrefix = [3]byte{0x02, 0x6e, 0x73}

// staticBase parts the MACs of static neighbours, which the twin was told, from
// those handed out on request. Each is a counter: a MAC derived from the address
// would collide, ::1 of every prefix first.
const staticBase = 1 << 23

// StaticMAC is the MAC for the n-th static neighbour of a twin.
func StaticMAC(n uint32) []byte {
	m := serialMAC(staticBase | n&(staticBase-1))
	return m[:]
}

func serialMAC(n uint32) MAC {
	return MAC{macPrefix[0], macPrefix[1], macPrefix[2], byte(n >> 16), byte(n >> 8), byte(n)}
}

// maxHops bounds the next hops of one twin: a scan of a /16 asks for 65 536.
const maxHops = 4096

// hop is one next hop on one interface. Its lane is made with the first packet,
// not with the first question: a scan asks and never sends. Destinations on the
// link have one lane together (see [hops.toward]): a scan may send as well.
type hop struct {
	itf  *iface
	addr netip.Addr
	mac  MAC
	lane atomic.Pointer[lane]
	used atomic.Uint64 // tick of the last question or packet
	link bool          // all destinations on the link
}

type hopKey struct {
	itf  *iface
	addr netip.Addr
}

// hops is the table of MACs that were handed out. A frame to any other is
// dropped.
type hops struct {
	mu     sync.RWMutex
	byMAC  map[MAC]*hop
	byAddr map[hopKey]*hop
	links  map[*iface]*hop
	serial uint32
	tick   atomic.Uint64
	near   near
}

func newHops() *hops {
	return &hops{byMAC: map[MAC]*hop{}, byAddr: map[hopKey]*hop{}, links: map[*iface]*hop{}}
}

// find returns the next hop that a frame on itf is for.
func (h *hops) find(itf *iface, m MAC) *hop {
	h.mu.RLock()
	defer h.mu.RUnlock()
	p := h.byMAC[m]
	if p == nil || p.itf != itf {
		return nil
	}
	if now := h.tick.Load(); p.used.Load() != now {
		p.used.Store(now)
	}
	return p
}

// toward returns the hop whose lane a packet takes: its next hop's, or if that is
// where the packet goes, the link's.
func (h *hops) toward(p *hop, typ uint16, head []byte) *hop {
	to := head[16:20]
	if typ == etherIPv6 {
		to = head[24:40]
	}
	if dst, _ := netip.AddrFromSlice(to); p.addr != dst {
		return p
	}
	h.mu.RLock()
	l := h.links[p.itf]
	h.mu.RUnlock()
	if l != nil {
		return l
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links[p.itf] == nil {
		h.links[p.itf] = &hop{itf: p.itf, link: true}
	}
	return h.links[p.itf]
}

// mac returns the MAC that was handed out for an address. None is: a frame from it
// is as good, for Linux looks at the source of frames that ask, and no others.
func (h *hops) mac(itf *iface, addr []byte) MAC {
	a, _ := netip.AddrFromSlice(addr)
	h.mu.RLock()
	defer h.mu.RUnlock()
	if p := h.byAddr[hopKey{itf, a}]; p != nil {
		return p.mac
	}
	return serialMAC(0)
}

// ask returns the next hop for an address, making it when there is room.
func (h *hops) ask(itf *iface, addr netip.Addr) *hop {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.tick.Add(1)
	p := h.byAddr[hopKey{itf, addr}]
	if p == nil {
		if len(h.byMAC) >= maxHops && !h.evict() {
			return nil
		}
		h.serial = (h.serial + 1) & (staticBase - 1)
		p = h.add(itf, addr, serialMAC(h.serial))
	}
	p.used.Store(now)
	return p
}

func (h *hops) add(itf *iface, addr netip.Addr, m MAC) *hop {
	p := &hop{itf: itf, addr: addr, mac: m}
	h.byMAC[m], h.byAddr[hopKey{itf, addr}] = p, p
	return p
}

// tell registers a static neighbour.
func (h *hops) tell(itf *iface, n NextHop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(n.MAC) == 6 {
		h.add(itf, n.Addr, MAC(n.MAC))
	}
}

// evict forgets the next hop that was used longest ago and has no lane of its own.
// The twin's kernel asks again when its entry is stale.
func (h *hops) evict() bool {
	var old *hop
	for _, p := range h.byMAC {
		static := binary.BigEndian.Uint32(p.mac[2:])&staticBase != 0
		if !static && p.lane.Load() == nil && (old == nil || p.used.Load() < old.used.Load()) {
			old = p
		}
	}
	if old == nil {
		return false
	}
	delete(h.byMAC, old.mac)
	delete(h.byAddr, hopKey{old.itf, old.addr})
	return true
}

func (h *hops) len() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.byMAC)
}
