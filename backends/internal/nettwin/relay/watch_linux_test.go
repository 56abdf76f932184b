package relay

import (
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// TestWatchSeesWhatIsRemovedAndMadeAgain looks at the host before and after changes
// that leave it as it was.
func TestWatchSeesWhatIsRemovedAndMadeAgain(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.Tool("ip"))
	l := netlab.New()
	defer l.Close()
	host, err := l.Node("host")
	if err != nil {
		t.Fatal(err)
	}
	run := func(line string) {
		t.Helper()
		if _, err := host.Run(t.Context(), append([]string{"ip"}, strings.Fields(line)...)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, family := range []string{"-4 ", "-6 "} {
		run(family + "rule add pref 5100 fwmark 0x5b000001/0xff003fff lookup 1526726657 proto 91")
		run(family + "route add unreachable default table 1526726657 metric 4294967295 proto 91")
	}
	var w *watch
	if err := host.Do(func() (err error) {
		w, err = openWatch()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	const number = 1526726657
	was := w.count(number)
	for _, c := range []struct {
		line string
		more uint64
	}{
		{"rule del pref 5100", 1},
		{"rule add pref 5100 fwmark 0x5b000001/0xff003fff lookup 1526726657 proto 91", 0},
		{"route del unreachable default table 1526726657 metric 4294967295 proto 91", 1},
		{"route add unreachable default table 1526726657 metric 4294967295 proto 91", 0},
		{"rule add pref 5099 from 192.0.2.2 ipproto tcp sport 7 lookup 1526726657 proto 91", 0}, // lets in the answers of one flow
		{"rule del pref 5099", 0},
		{"route add unreachable default table 77 metric 9", 0},
		{"route del unreachable default table 77 metric 9", 0},
	} {
		for _, family := range []string{"-4 ", "-6 "} {
			line := c.line
			if family == "-6 " {
				line = strings.Replace(line, "192.0.2.2", "2001:db8::2", 1)
			}
			run(family + line)
			if got := w.count(number); got != was+c.more {
				t.Errorf("after %s%s: %d more, want %d", family, line, got-was, c.more)
			}
			was = w.count(number)
		}
	}
	if n := w.count(number + 1); n != 0 {
		t.Errorf("of another lane %d were removed, want none", n)
	}
}

// TestWatchThatMissedSomething takes no gap in what it heard for quiet.
func TestWatchThatMissedSomething(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.NetNS, nstest.Tool("ip"))
	l := netlab.New()
	defer l.Close()
	host, err := l.Node("host")
	if err != nil {
		t.Fatal(err)
	}
	var w *watch
	if err := host.Do(func() (err error) {
		w, err = openWatch()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	was := w.count(7)
	var lines strings.Builder
	for range 3000 {
		lines.WriteString("rule add pref 9 lookup 9\nrule del pref 9\n")
	}
	if _, err := host.Run(t.Context(), "sh", "-c", "ip -batch - <<'END'\n"+lines.String()+"END\n"); err != nil {
		t.Fatal(err)
	}
	if w.count(7) == was {
		t.Error("what the socket had no room for is taken for nothing")
	}
}
