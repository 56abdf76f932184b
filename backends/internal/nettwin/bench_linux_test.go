package nettwin

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/netlab"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/versus"
)

// course is one thing that every contestant of the benchmark does in each round.
type course struct {
	name   string // what follows the direction: "10", "1v6"
	server string
	flows  int
	size   int // bytes in all, before each contestant's share
}

var courses = []course{
	{"1", "203.0.113.80:95", 1, 100 << 20},
	{"10", "203.0.113.80:95", 10, 100 << 20},
	{"100", "203.0.113.80:95", 100, 100 << 20},
	{"1v6", "[2001:db8:80::80]:95", 1, 100 << 20},
}

// contestant is a way to the server; pid is the process in between, and 0 when
// there is none.
type contestant struct {
	name string
	node *netlab.Node
	pid  int
}

// share is how much of a course's bytes a contestant carries, so that no run is
// too short to be measured nor takes half a minute.
func (c contestant) share(o course) int {
	switch {
	case c.pid == 0:
		return 2 * o.size
	case c.name == "slirp" && o.flows == 100:
		return o.size / 5
	}
	return o.size
}

// BenchmarkTwin carries bytes both ways over one flow, ten and a hundred, and
// makes connections one after the other: from the host itself, through the twin,
// and through slirp4netns at the same MTU. Client, server and what is in between
// share the machine. Hashes of every stream are compared.
func BenchmarkTwin(b *testing.B) {
	l := newLab(b, nstest.Tool("slirp4netns"))
	bulk(b, l.server)
	l.mirror(b, Options{})
	slirp, pid := l.slirp(b)
	from := []contestant{{"direct", l.host, 0}, {"twin", l.inside, l.twin.Status().Relay}, {"slirp", slirp, pid}}
	var s versus.Series
	for b.Loop() {
		for _, o := range courses {
			for _, dir := range []byte{down, up} {
				for _, f := range from {
					run(b, &s, o, dir, f)
				}
			}
		}
		for _, f := range from {
			for range 100 {
				s.Time(f.name+"-connect", func() {
					c, err := f.node.Dial(b.Context(), "tcp", "203.0.113.80:95")
					must(b, err)
					c.Close()
				})
			}
		}
	}
	ratios := []string{"twin-connect/direct-connect"}
	for _, o := range courses {
		for _, dir := range []byte{down, up} {
			what := fmt.Sprintf("-%c%s-MB/s", dir, o.name)
			ratios = append(ratios, "twin"+what+"÷slirp"+what)
		}
	}
	s.Report(b, ratios...)
	b.ReportMetric(s.Median("twin-connect-ms")-s.Median("direct-connect-ms"), "connect-extra-ms")
	b.ReportMetric(float64(peak(b, from[1].pid))/1e6, "relay-peak-MB")
	b.ReportMetric(float64(peak(b, pid))/1e6, "slirp-peak-MB")
	b.ReportMetric(float64(l.ringDrops(b)), "ring-drops")
}

// run takes one contestant over one course, in one direction.
func run(b *testing.B, s *versus.Series, o course, dir byte, f contestant) {
	b.Helper()
	size, before := f.share(o), cpu(b, f.pid)
	took := transfer(b, f.node, o.server, dir, o.flows, size)
	what := fmt.Sprintf("%s-%c%s", f.name, dir, o.name)
	s.Add(what+"-MB/s", float64(size)/1e6/took.Seconds())
	if f.pid != 0 {
		s.Add(what+"-s/GB", (cpu(b, f.pid)-before).Seconds()/float64(size)*1e9)
	}
}

// slirp is a namespace behind slirp4netns on the lab's host.
func (l *testLab) slirp(b *testing.B) (*netlab.Node, int) {
	n, err := l.Node("slirp")
	must(b, err)
	cmd := exec.Command("slirp4netns", "--configure", "--enable-ipv6", "--mtu=1500", "--netns-type=path",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.NS().Fd()), "tap0")
	must(b, l.host.Start(cmd))
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := n.Dial(b.Context(), "tcp", "203.0.113.80:95")
		if err == nil {
			c.Close()
			return n, cmd.Process.Pid
		}
		if time.Now().After(end) {
			b.Fatalf("slirp4netns does not connect: %v", err)
		}
	}
}

// cpu is the processor time of a process, the steadiest figure on a busy machine.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(b, err)
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, i := range []int{11, 12} { // utime, stime in clock ticks of 10 ms, see proc_pid_stat(5)
		n, err := strconv.Atoi(f[i])
		must(b, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
