package inetdiag

// Accepts reports whether listener l could have accepted the connection c, so
// that c is inbound. It is the kernel's own lookup rule without the choice
// among several candidates: port, address or wildcard, address family, bound
// interface.
func (l Socket) Accepts(c Socket) bool {
	if l.State != Listen || l.Local.Port() != c.Local.Port() {
		return false
	}
	if l.Ifindex != 0 && c.Ifindex != 0 && l.Ifindex != c.Ifindex {
		return false
	}
	la, ca := l.Local.Addr(), c.Local.Addr()
	if !la.IsUnspecified() {
		return la == ca
	}
	if la.Is4() {
		// 0.0.0.0 as well as ::ffff:0.0.0.0, which an IPv6 socket can be bound to.
		return ca.Is4()
	}
	return ca.Is6() || !l.V6Only
}
