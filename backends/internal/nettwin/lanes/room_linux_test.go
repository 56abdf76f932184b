package lanes

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// gateway is the i-th of many that nobody has.
func (l *lab) gateway(i int) way.Lane {
	return way.Lane{Index: l.eth1, NextHop: netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", 3+i%250)), Six: false}
}

// TestLeastUsedLaneMakesRoom fills the table of lanes. The one that goes for the
// next is the one longest not asked for, unless something is open on it: an
// admission, or any socket with its mark.
func TestLeastUsedLaneMakesRoom(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	ls := l.lanes(t, Options{})
	now := time.Now()
	ls.now = func() time.Time { now = now.Add(time.Millisecond); return now }
	lanes := make([]way.Lane, 0, capacity+2)
	for i := range 250 {
		lanes = append(lanes, l.gateway(i))
	}
	for i := range capacity + 2 - len(lanes) {
		lanes = append(lanes, way.Lane{Index: l.eth1, NextHop: netip.MustParseAddr(fmt.Sprintf("fe80::%x", 0x100+i)), Six: true})
	}
	marks := map[int]uint32{}
	for i := range capacity {
		m, err := ls.Lane(lanes[i])
		must(t, err)
		marks[i] = m
	}
	must(t, ls.Admit(flow(lanes[0], netip.MustParseAddrPort("198.51.100.2:4000"))))
	fd, _ := l.bound(t, marks[1], "198.51.100.2")
	defer unix.Close(fd)
	must(t, unix.Listen(fd, 1)) // bound, and no more, it is in no table of sockets
	_, err := ls.Lane(lanes[2]) // asked for again
	must(t, err)

	// A mark just handed out has no socket yet.
	_, err = ls.Lane(lanes[capacity])
	wantLimit(t, err, way.Load)
	now = now.Add(grace)
	m, err := ls.Lane(lanes[capacity])
	must(t, err)
	if m != marks[3] {
		t.Errorf("the new lane got %#x, want %#x of the one not used", m, marks[3])
	}
	for i := range 3 {
		if again, err := ls.Lane(lanes[i]); err != nil || again != marks[i] {
			t.Errorf("lane %d is %#x (%v), want %#x as before", i, again, err, marks[i])
		}
	}
	ruleOf(t, ls, m, lanes[capacity].Six)
	if n := len(ls.lanes); n != capacity {
		t.Errorf("%d lanes, want %d", n, capacity)
	}
	must(t, ls.Close())
	l.same(t, before)
}

// TestNoRoomIsALimit has something open on every lane.
func TestNoRoomIsALimit(t *testing.T) {
	l := newLab(t)
	ls := l.lanes(t, Options{})
	now := time.Now()
	ls.now = func() time.Time { return now }
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for i := range capacity {
		w := l.gateway(i)
		if i >= 250 {
			w = way.Lane{Index: l.eth0, NextHop: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i-200)), Six: false}
		}
		m, err := ls.Lane(w)
		must(t, err)
		must(t, l.host.Do(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			return errors.Join(
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(m)),
				unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{203, 0, 113, 80}}))
		}))
	}
	now = now.Add(grace)
	next := way.Lane{Index: l.eth0, NextHop: netip.MustParseAddr("192.0.2.200")}
	_, err := ls.Lane(next)
	wantLimit(t, err, way.Load)
	must(t, unix.Close(fds[77]))
	fds = append(fds[:77], fds[78:]...)
	_, err = ls.Lane(next)
	must(t, err)
}
