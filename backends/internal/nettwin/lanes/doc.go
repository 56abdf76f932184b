// Package lanes makes the host's kernel send by ways that the host itself would
// not take: a candidate's gateway, another interface. It is the only code of a
// twin that touches the host's routing, and it refuses to touch anything else:
// no sysctl, no packet filter, no route or rule that another program's packets
// could match.
//
// A lane is a number, used three times: as mark of the sockets that take it, as
// table, and in the rule that leads from one to the other:
//
//	5100: from all fwmark 0x5b000000/0xff003fff lookup 1526726656 proto 91
//	default via 198.51.100.1 dev eth1 table 1526726656 proto 91 onlink
//	unreachable default table 1526726656 proto 91 metric 4294967295
//
// The fence, the unreachable route, is made first and removed last. When the
// interface goes down the kernel removes the route above it, and without a fence
// the lookup would go on to the host's own table and a check would pass by the
// wrong way.
//
// # Answers
//
// Where the host filters reverse paths strictly (rp_filter, RFC 3704), an answer
// that arrives by a lane is dropped: the kernel looks up the way back without
// the mark. A rule with exactly the flow's five-tuple lets it in, see
// [Lanes.Admit]. It works because the kernel dissects the ports of what arrives
// once a rule asks for ports (since 4.17). Messages of the way itself (ICMP
// errors) have no ports, match no such rule and are dropped by a strict filter;
// so are later fragments of a datagram.
//
// # Numbers and owners
//
// Numbers come in blocks of 256. A block is claimed by binding an abstract unix
// socket, @netsandbox/lanes/BLOCK, in the host's network namespace: that is
// exclusive on the whole host, whoever keeps which state where, and the kernel
// gives it back when the owner dies, however it dies. The same name is the proof
// of life for [Sweep]: what carries our tag and belongs to a block whose name can
// be bound belongs to nobody. A sweeper holds the name while it deletes, so that
// no new owner makes objects meanwhile. Anybody on the host may bind a name, and
// so keep what a dead owner left from being removed, or a block from being used;
// nothing worse.
//
// Ours is what matches the whole pattern: protocol 91, and a table of our range,
// and the mark, mask and shape that go with it. Protocol 91 alone says nothing;
// somebody else's is never deleted.
//
// # Neighbours
//
// Others keep routing tables too. systemd-networkd removes rules and routes that
// it did not make when it configures an interface (ManageForeignRoutes and
// ManageForeignRoutingPolicyRules in networkd.conf(5)), and a link that goes down
// takes its routes along. So [Lanes.Ensure] makes again what is missing before
// each probe, and a lane that is asked for looks after itself once a second.
package lanes
