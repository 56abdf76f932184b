package change

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// capability is the attribute that holds the capabilities of a program file.
const capability = "security.capability"

// Forms of it, from linux/capability.h: a little-endian word of revision and
// flags, then pairs of permitted and inheritable words; the third revision ends
// with the id of the user namespace's root for which it holds.
const (
	capRevisions = 0xFF000000
	capEffective = 0x00000001
)

// capNames are the names of capabilities(7) by number.
var capNames = [...]string{
	"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "linux_immutable",
	"net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot",
	"sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease",
	"audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read",
	"perfmon", "bpf", "checkpoint_restore",
}

// fileCaps is what a program file gives its process.
type fileCaps struct {
	permitted, inheritable uint64
	effective              bool // all of them are in effect from the start
	root                   uint32
	namespaced             bool // they hold below that root only
}

// decodeCaps reads capabilities in the kernel's form; false where they are none.
func decodeCaps(value []byte) (fileCaps, bool) {
	var c fileCaps
	if len(value) < 4 {
		return c, false
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(value[4*i:])) }
	magic := uint32(word(0))
	if magic&^(capRevisions|capEffective) != 0 {
		return c, false
	}
	c.effective = magic&capEffective != 0
	switch revision := magic >> 24; {
	case revision == 1 && len(value) == 12:
		c.permitted, c.inheritable = word(1), word(2)
		return c, true
	case revision == 3 && len(value) == 24:
		c.root, c.namespaced = uint32(word(5)), true
	case revision != 2 || len(value) != 20:
		return c, false
	}
	c.permitted, c.inheritable = word(1)|word(3)<<32, word(2)|word(4)<<32
	return c, true
}

// String renders capabilities as setcap(8) takes them, one clause for every set
// of flags: "cap_net_admin,cap_net_raw+ep cap_chown+ei".
func (c fileCaps) String() string {
	effective := ""
	if c.effective {
		effective = "e"
	}
	var clauses []string
	for _, part := range []struct {
		caps  uint64
		flags string
	}{
		{c.permitted & c.inheritable, effective + "ip"},
		{c.permitted &^ c.inheritable, effective + "p"},
		{c.inheritable &^ c.permitted, effective + "i"},
	} {
		if part.caps != 0 {
			clauses = append(clauses, capList(part.caps)+"+"+part.flags)
		}
	}
	if len(clauses) == 0 {
		return "=" // an empty set takes away what a caller would have
	}
	return strings.Join(clauses, " ")
}

// capList names a set; one that has no name yet is its number.
func capList(set uint64) string {
	var names []string
	for n := range 64 {
		switch {
		case set&(1<<n) == 0:
		case n < len(capNames):
			names = append(names, "cap_"+capNames[n])
		default:
			names = append(names, strconv.Itoa(n))
		}
	}
	return strings.Join(names, ",")
}

// capCommand sets capabilities, for the user namespaces of one root where they
// are so limited.
func capCommand(c fileCaps, path string) string {
	if c.namespaced {
		return fmt.Sprintf("setcap -n %d %s %s", c.root, Quote(c.String()), path)
	}
	return fmt.Sprintf("setcap %s %s", Quote(c.String()), path)
}
