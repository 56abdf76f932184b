package xtables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

// Table is one table as the kernel gives it out.
type Table struct {
	family    *family
	name      string
	valid     uint32   // the hooks that it has, as bits
	hook      []uint32 // by hook, the offset of its first entry
	underflow []uint32 // and that of its policy
	count     uint32   // of entries
	entries   []byte
}

// String is the table's family and name, as in "ip filter".
func (t *Table) String() string { return t.family.name + " " + t.name }

// Read reads the tables of the namespace ns that exist there.
func Read(ns int) ([]*Table, error) {
	var out []*Table
	err := each(ns, func(f *family, fd int) error {
		names, err := f.tables()
		if err != nil {
			return err
		}
		for _, name := range slices.Backward(names) { // the newest is listed first
			t, err := f.read(fd, name)
			if err != nil {
				return fmt.Errorf("read table %s of %s: %w", name, f.tool, err)
			}
			out = append(out, t)
		}
		return nil
	})
	return out, err
}

// each calls f for every family that has tables in ns, with a socket there.
func each(ns int, f func(*family, int) error) error {
	return netns.Do(ns, func() error {
		for _, fam := range families {
			if names, err := fam.tables(); err != nil || len(names) == 0 {
				if err != nil {
					return err
				}
				continue
			}
			err := fam.withSocket(func(fd int) error { return f(fam, fd) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// withSocket calls f with a socket in the calling thread's namespace.
func (f *family) withSocket(do func(fd int) error) error {
	fd, err := unix.Socket(f.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("open socket for %s: %w", f.tool, err)
	}
	defer unix.Close(fd)
	return do(fd)
}

// info asks for everything but the entries.
func (f *family) info(fd int, name string) (*Table, uint32, error) {
	n := len(f.hooks)
	b := make([]byte, nameSize+4+8*n+8) // struct ipt_getinfo
	copy(b, name)
	if err := getOption(fd, f.level, f.base, b); err != nil {
		return nil, 0, err
	}
	t := &Table{family: f, name: name, valid: number(b, nameSize)}
	for i := range n {
		t.hook = append(t.hook, number(b, nameSize+4+4*i))
		t.underflow = append(t.underflow, number(b, nameSize+4+4*n+4*i))
	}
	t.count = number(b, len(b)-8)
	return t, number(b, len(b)-4), nil
}

func (f *family) read(fd int, name string) (*Table, error) {
	// The size is asked for first; a table that grows meanwhile is asked again.
	var err error
	for range 8 {
		var t *Table
		var size uint32
		if t, size, err = f.info(fd, name); err != nil {
			return nil, err
		}
		const header = 40 // struct ipt_get_entries: name, size, padding
		b := make([]byte, header+int(size))
		copy(b, name)
		binary.NativeEndian.PutUint32(b[nameSize:], size)
		if err = getOption(fd, f.level, f.base+1, b); err == nil {
			t.entries = b[header:]
			return t, nil
		}
		if err != unix.EAGAIN && err != unix.EINVAL {
			return nil, err
		}
	}
	return nil, err
}

// replace puts t in the place of the table of its name, as root of owner when
// that is not nil. counters is the number of entries that are replaced.
func (t *Table) replace(fd int, owner *os.File, counters uint32) error {
	n := len(t.family.hooks)
	at := nameSize + 12 + 8*n // of num_counters in struct ipt_replace
	header := (at+4+7)&^7 + 8
	b := make([]byte, header+len(t.entries))
	copy(b, t.name)
	put := func(at int, v uint32) { binary.NativeEndian.PutUint32(b[at:], v) }
	put(nameSize, t.valid)
	put(nameSize+4, t.count)
	put(nameSize+8, uint32(len(t.entries)))
	for i := range n {
		put(nameSize+12+4*i, t.hook[i])
		put(nameSize+12+4*n+4*i, t.underflow[i])
	}
	put(at, counters)
	copy(b[header:], t.entries)
	// The kernel hands out the counters of the table that goes; it insists.
	old := make([]byte, max(counters, 1)*counterSize)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&old[0])
	binary.NativeEndian.PutUint64(b[header-8:], uint64(uintptr(unsafe.Pointer(&old[0]))))
	return setOption(owner, fd, t.family.level, t.family.base, b)
}

// addCounters gives the table of this name the counts of t.
func (t *Table) addCounters(fd int) error {
	const header = 40 // struct xt_counters_info: name, number, padding
	b := make([]byte, header, header+int(t.count)*counterSize)
	copy(b, t.name)
	binary.NativeEndian.PutUint32(b[nameSize:], t.count)
	for e := range t.walk() {
		b = append(b, e.bytes[t.family.head-counterSize:t.family.head]...)
	}
	return setOption(nil, fd, t.family.level, t.family.base+1, b)
}

func setOption(owner *os.File, fd, level, name int, b []byte) error {
	if owner != nil {
		return userns.SetOption(owner, fd, level, name, b)
	}
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0)
	if e != 0 {
		return e
	}
	return nil
}

func getOption(fd, level, name int, b []byte) error {
	n := uint32(len(b))
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name), uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return nil
}

func number(b []byte, at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }

func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
