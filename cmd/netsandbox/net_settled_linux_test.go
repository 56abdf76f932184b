package main

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// linksUp waits until the links of the calling thread's network, and those of the
// nodes, are as they will stay: the kernel adds flags, link-local addresses and
// routes some time after a carrier came (within a second: linkwatch in net/core).
func linksUp(t testing.TB, nodes ...*node) error {
	const most = 20 * time.Second
	end := time.Now().Add(most)
	for dump := ""; !up(dump); time.Sleep(5 * time.Millisecond) {
		if dump = hostNetwork(t); time.Now().After(end) {
			return fmt.Errorf("the links do not come up in %s:\n%s", most, dump)
		}
	}
	for _, n := range nodes {
		for n.do(localLinks) != nil {
			if time.Now().After(end) {
				return n.do(localLinks)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return nil
}

// up reports whether a dump shows eth0 and eth1 as they will stay.
func up(dump string) bool {
	local := func(dst string) bool { return strings.Contains(dump, " dst="+dst+"\n") }
	return strings.Count(dump, "multicast|running") == 2 && strings.Count(dump, " dst=fe80::\n") == 2 &&
		strings.Count(dump, " dst=ff00::\n") == 2 && local("2001:db8:1::2") && local("2001:db8:2::2") &&
		strings.Count(dump, " dst=fe80::") == 4
}

// localLinks fails while a link of the calling thread's network has no link-local
// address: it gets one when it is ready for IPv6.
func localLinks() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, itf := range all {
		addrs, err := itf.Addrs()
		if err != nil {
			return err
		}
		ready := slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), "fe80:") })
		if itf.Flags&net.FlagLoopback == 0 && (!ready || itf.Flags&net.FlagRunning == 0) {
			return fmt.Errorf("link %s is not ready: %s, %s", itf.Name, itf.Flags, addrs)
		}
	}
	return nil
}

// hostNetwork is what of the calling thread's network must stay as it is.
func hostNetwork(t testing.TB) string { return dumpWithout(t, "mount", "process", "cgroup") }

// dumpWithout is what the calling thread's host has, but for these kinds of lines.
func dumpWithout(t testing.TB, kinds ...string) string {
	var b strings.Builder
	for l := range strings.Lines(nstest.HostDump(t)) {
		if kind, _, _ := strings.Cut(l, " "); !slices.Contains(kinds, kind) {
			b.WriteString(l)
		}
	}
	return b.String()
}

// netdumpCmd writes what the script's host has to a file, as text that can be
// compared: `netdump FILE` all that netsandbox must not touch, `netdump FILE net`
// its network only, for while an environment lives.
func netdumpCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: netdump FILE [net]")
	}
	t := ts.Value(keyT).(testing.TB)
	dump := hostNetwork(t)
	if len(args) == 1 {
		dump = dumpWithout(t, "cgroup") // scripts at the same time have theirs in the same place
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(dump), 0o644))
}
