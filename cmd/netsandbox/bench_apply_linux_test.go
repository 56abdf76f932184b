package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/versus"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// BenchmarkApply applies 1 000 and 10 000 changed files by the program, with
// everything that it does around the files: circuits and plan refreshed, keeper
// started, journal written. Beside it the files are copied by cp and rsync, and
// synced. What the transaction alone costs is BenchmarkApply of workflow/txn.
func BenchmarkApply(b *testing.B) {
	x := newBenchOn(b, looped)
	var s versus.Series
	for b.Loop() {
		for range 2 {
			x.applied(1000, "1k", &s)
		}
		x.applied(10000, "10k", &s)
	}
	var ratios []string
	for _, size := range []string{"1k", "10k"} {
		ratios = append(ratios, "apply-"+size+"/cp+sync-"+size, "apply-"+size+"/rsync+sync-"+size, "rollback-"+size+"/apply-"+size)
	}
	s.Report(b, append(ratios, "plan-10k/plan-1k", "apply-10k/apply-1k", "rollback-10k/rollback-1k")...)
}

// applied changes n files in a new environment and measures what brings them to
// the host and back.
func (x *bench) applied(n int, size string, s *versus.Series) {
	src, base := filepath.Join(x.dir, "src-"+size), filepath.Join(x.base, size)
	x.fill(src, "new", n)
	x.fill(base, "old", n)
	x.create("bench")
	x.run("exec", "bench", "--", "cp", "-a", src+"/.", base)
	s.Time("plan-"+size, func() {
		x.run("check", "bench")
		x.run("plan", "bench")
	})
	unix.Sync()
	var out []byte
	s.Time("apply-"+size, func() { out = x.run("--json", "apply", "bench", "--yes") })
	x.same(src, base)
	var doc report.Applied
	if err := json.Unmarshal(out, &doc); err != nil {
		x.b.Fatal(err)
	}
	unix.Sync()
	s.Time("rollback-"+size, func() { x.run("rollback", doc.Txn, "--yes") })
	x.discard("bench")
	for name, argv := range map[string][]string{
		"cp+sync-": {"cp", "-a", src + "/.", base}, "rsync+sync-": {"rsync", "-a", "-I", src + "/", base},
	} {
		x.fill(base, "old", n)
		unix.Sync()
		s.Time(name+size, func() {
			x.call(argv...)
			x.call("sync", "-f", base)
		})
	}
}

// looped gives the bench a journaled ext4 of its own: the machine's may have no
// journal, and other people's dirty data would be in the syncs.
func looped(b *testing.B) string {
	nstest.Require(b, nstest.Tool("mkfs.ext4"), nstest.Tool("rsync"))
	dir := b.TempDir()
	image, at := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	for _, c := range [][]string{
		{"mkdir", at}, {"truncate", "-s", "3G", image}, {"mkfs.ext4", "-q", "-F", "-N", "500000", image}, {"mount", "-o", "loop", image, at},
	} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %v\n%s", c, err, out)
		}
	}
	return at
}

// fill makes n files of 900 bytes below dir, or writes over them.
func (x *bench) fill(dir, tag string, n int) {
	x.b.Helper()
	for i := range n {
		p := filepath.Join(dir, fmt.Sprintf("%d/%d.conf", i/100, i))
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if err == nil {
			err = os.WriteFile(p, fmt.Appendf(nil, "%s %0900d\n", tag, i), 0o644)
		}
		if err != nil {
			x.b.Fatal(err)
		}
	}
}

// same looks whether the files of one directory are in another, besides what a
// transaction keeps there as its first backup.
func (x *bench) same(a, b string) {
	x.b.Helper()
	out, err := exec.Command("diff", "-rq", "-x", ".netsandbox-*", a, b).CombinedOutput()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		x.b.Fatalf("not the same: %v\n%s", err, out)
	}
}
