package lanes

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// TestOneTableIsReadOfMany asks a host with many routes for two: the kernel
// filters, and nothing else is handed over.
func TestOneTableIsReadOfMany(t *testing.T) {
	l := newLab(t)
	c, err := rtnl.Dial(int(l.host.NS().Fd()))
	must(t, err)
	defer c.Close()
	msgs := make([][]byte, 10_000)
	for i := range msgs {
		m := route{table: unix.RT_TABLE_MAIN, protocol: unix.RTPROT_STATIC, typ: unix.RTN_UNICAST, via: netip.MustParseAddr("192.0.2.1")}.request()
		m[1] = 32
		msgs[i] = rtnl.Append(m, unix.RTA_DST, []byte{10, 0, byte(i >> 8), byte(i)})
	}
	for _, err := range c.Batch(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, msgs) {
		must(t, err)
	}
	ls := l.lanes(t, Options{})
	for _, six := range []bool{false, true} {
		mark, err := ls.Lane(way.Lane{Index: l.eth1, Six: six})
		must(t, err)
		for _, table := range []uint32{mark, 0} {
			ms, err := ls.kernel.dumpRoutes(six, table)
			must(t, err)
			if len(ms) != 2 {
				t.Errorf("%d routes were read of table %d (IPv6 %v), want 2", len(ms), table, six)
			}
		}
	}
}

// TestManyAtOnce calls everything at the same time.
func TestManyAtOnce(t *testing.T) {
	l := newLab(t)
	before := l.dump(t)
	ls := l.lanes(t, Options{Owner: "many"})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			w := way.Lane{Index: l.eth1, NextHop: netip.MustParseAddr(fmt.Sprintf("198.51.100.%d", 10+i%4))}
			for j := range 20 {
				f := flow(w, netip.AddrPortFrom(netip.MustParseAddr("198.51.100.2"), uint16(20000+100*i+j)))
				_, err := ls.Lane(w)
				if err == nil {
					err = ls.Admit(f)
				}
				if err == nil {
					_, err = ls.Translated(f)
				}
				if err == nil && j%5 == 0 {
					err = ls.Ensure()
				}
				if err != nil {
					t.Error(err)
					return
				}
				ls.Release(f)
			}
		})
	}
	wg.Wait()
	if len(ls.lanes) != 4 || len(ls.admits) != 0 {
		t.Errorf("%d lanes and %d admissions, want 4 and none", len(ls.lanes), len(ls.admits))
	}
	must(t, ls.Close())
	l.same(t, before)
}
