package nstest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

var required = flag.Bool("nstest.require", false,
	"fail, instead of skip, when the machine lacks an ability that a test needs")

// Req is one ability of the machine that a test needs.
type Req struct {
	name    string // unique; the key of the probe's cached answer
	missing string // what the last line of a run says when it is not there
	probe   func() error
}

// The abilities. Each probe does the thing itself in a scratch namespace.
var (
	Root     = Req{"root", "not root", probeRoot}
	NetNS    = Req{"netns", "no network namespaces", probeNetNS}
	Overlay  = Req{"overlay", "no overlay", probeOverlay}
	TUN      = Req{"tun", "no TUN device", probeTUN}
	NFT      = Req{"nft", "no nf_tables", probeNFT}
	UserNS   = Req{"userns", "no user namespaces", probeUserNS}
	IDMap    = Req{"idmap", "no idmapped mounts", probeIDMap}
	Landlock = Req{"landlock", "no Landlock", probeLandlock}
	Cgroup2  = Req{"cgroup2", "no writable cgroup2", probeCgroup2}
)

// Tool needs a program in the search path.
func Tool(name string) Req {
	return Req{"tool " + name, "no " + name, func() error {
		_, err := exec.LookPath(name)
		return err
	}}
}

// String returns the requirement's name.
func (r Req) String() string { return r.name }

// Check probes the requirement, once a process, and says what is in the way.
func (r Req) Check() error {
	probes.Lock()
	defer probes.Unlock()
	if err, known := probes.answers[r.name]; known {
		return err
	}
	err := r.probe()
	probes.answers[r.name] = err
	return err
}

var probes = struct {
	sync.Mutex
	answers map[string]error
}{answers: map[string]error{}}

// Require skips the test, or fails it with -nstest.require, unless the machine
// has every ability.
func Require(t testing.TB, reqs ...Req) {
	t.Helper()
	for _, r := range reqs {
		err := r.Check()
		if err == nil {
			continue
		}
		if *required {
			t.Fatalf("nstest: needs %s: %v", r, err)
		}
		skips.add(r.missing)
		t.Skipf("nstest: %s: %v", r.missing, err)
	}
}

// tally counts skipped tests by reason.
type tally struct {
	sync.Mutex
	reasons map[string]int
}

var skips = &tally{reasons: map[string]int{}}

func (s *tally) add(reason string) {
	s.Lock()
	defer s.Unlock()
	s.reasons[reason]++
}

// line is the loud last line of a run; empty when nothing was skipped.
func (s *tally) line() string {
	s.Lock()
	defer s.Unlock()
	total := 0
	for _, n := range s.reasons {
		total += n
	}
	if total == 0 {
		return ""
	}
	noun := "tests"
	if total == 1 {
		noun = "test"
	}
	reasons := slices.Sorted(maps.Keys(s.reasons))
	return fmt.Sprintf("nstest: %d %s skipped (%s)", total, noun, strings.Join(reasons, ", "))
}

// announce prints the line, and appends it to the file that NSTEST_SUMMARY
// names: `go test ./...` shows the output of failing packages only, so whoever
// drives several packages collects the lines there and prints them at the end.
func announce(line string) {
	if line == "" {
		return
	}
	fmt.Fprintln(os.Stderr, line)
	name := os.Getenv("NSTEST_SUMMARY")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintf(os.Stderr, "nstest: record summary: %v\n", err)
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s: %s\n", os.Args[0], line)
}
