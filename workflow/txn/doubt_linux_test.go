package txn

import (
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
)

// A commit cannot be recorded, and then the undo cannot either: nobody knows what
// the disk will say. Whatever it is, the host agrees with it.
func TestCommitThatMayBeOnTheDisk(t *testing.T) {
	for _, k := range []faultfs.Kind{faultfs.Ext4, faultfs.XFS, faultfs.Btrfs} {
		t.Run(k.Name, func(t *testing.T) {
			nstest.NewMount(t, nstest.Tool(k.Mkfs[0]))
			d := &deviceTest{t: t, host: faultfs.New(t, k), state: faultfs.New(t, k)}
			c := courses[1]
			d.outcomes(c)
			said := map[Status]int{}
			for _, lost := range []bool{false, true} {
				for _, first := range []faultfs.Op{faultfs.Write, faultfs.Flush} {
					said[d.doubt(c, first, lost)]++
				}
			}
			t.Logf("the disk said %v", said)
		})
	}
}

// doubt lets the commit's sync fail once, and from the next record on every
// write. With lost, what the disk had in its cache is lost too.
func (d *deviceTest) doubt(c course, first faultfs.Op, lost bool) Status {
	w := d.world(c)
	defer d.clear(w)
	verdicts := 0
	l := d.live(c, w, func(_ int, name string) {
		if name != "record verdict" {
			return
		}
		if verdicts++; verdicts == 1 {
			d.state.FailOnce(first, 0, 1)
		} else {
			d.state.Fail(faultfs.Write)
		}
	})
	if verdicts != 2 {
		d.t.Fatalf("%d verdicts were tried: %v", verdicts, l.log)
	}
	_, _ = l.recover("keeper") // it may fail, not lie
	if lost {
		d.state.Cut()
	}
	d.state.Remount()
	d.host.Remount()
	res, err := l.recover("recover")
	if err != nil || len(res.Leftovers) > 0 {
		d.t.Fatalf("recover: %+v, %v", res, err)
	}
	if wrong := d.judge(w, l, res.Status); len(wrong) > 0 {
		d.t.Errorf("lost %v:\n%s\n\t%s", lost, strings.Join(wrong, "\n"), strings.Join(l.log, "\n\t"))
	}
	return res.Status
}
