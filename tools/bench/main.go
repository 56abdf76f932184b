// Bench runs the benchmarks of docs/benchmarks.md and prints their bars as a
// table that can be pasted.
//
// The benchmarks themselves are in the packages that they measure; each runs its
// contestants in turn, in the same minutes on the same machine, and reports
// medians and ratios. This program builds all of them first, so that no compiler
// runs beside them, runs one after the other, and holds the ratios against the
// bars. A missed bar is printed and is no failure: a benchmark that failed a
// build on a busy day would soon be switched off.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	only := flag.String("bench", ".", "run only suites whose `name` matches this regular expression")
	rounds := flag.Int("rounds", 100, "`percent` of the usual number of rounds")
	verbose := flag.Bool("v", false, "print what the benchmarks print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, *only, *rounds, *verbose); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, only string, percent int, verbose bool) error {
	want, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("parse -bench: %w", err)
	}
	var chosen []suite
	for _, s := range suites {
		if want.MatchString(s.name()) {
			s.rounds = max(1, s.rounds*percent/100)
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no suite matches %q", only)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range chosen {
		if err := chosen[i].build(ctx, dir); err != nil {
			return err
		}
	}
	fmt.Printf("%s\n\n", machine())
	var failed []error
	for i := range chosen {
		s := &chosen[i]
		fmt.Fprintf(os.Stderr, "bench: %s, %d rounds, load %s\n", s.name(), s.rounds, load())
		if err := s.run(ctx, verbose); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	render(os.Stdout, chosen)
	return errors.Join(failed...)
}

// name is what -bench is matched with.
func (s *suite) name() string { return s.pkg + "." + s.bench }

// build compiles the suite's test binary, as the program itself is compiled: a
// binary with cgo cannot confine its own threads.
func (s *suite) build(ctx context.Context, dir string) error {
	s.binary = filepath.Join(dir, strings.ReplaceAll(s.pkg, "/", "-")+".test")
	if _, err := os.Stat(s.binary); err == nil {
		return nil // another suite of the package
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-trimpath", "-o", s.binary, "./"+s.pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build benchmarks of %s: %w\n%s", s.pkg, err, out)
	}
	return nil
}

// run runs the suite and keeps what it reports. An interrupt does not end it: its
// environments, mounts and filesystems are taken away when it ends by itself, so
// it has a process group of its own.
func (s *suite) run(ctx context.Context, verbose bool) error {
	cmd := exec.Command(s.binary, "-test.run=^$", "-test.bench="+s.bench,
		"-test.benchtime="+strconv.Itoa(s.rounds)+"x", "-test.timeout=60m", "-nstest.require")
	cmd.Dir = s.pkg
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	defer context.AfterFunc(ctx, func() {
		fmt.Fprintf(os.Stderr, "bench: %s takes away what it made, then this ends\n", s.name())
	})()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if verbose {
		cmd.Stdout = io.MultiWriter(&out, os.Stderr)
		cmd.Stderr = cmd.Stdout
	}
	s.load[0] = load()
	err := cmd.Run()
	s.load[1] = load()
	s.got = metrics(out.String())
	if err != nil {
		return fmt.Errorf("run %s: %w\n%s", s.name(), err, out.String())
	}
	return nil
}

// line is one result of package testing: name, rounds, then pairs of value and
// unit.
var line = regexp.MustCompile(`(?m)^Benchmark\S+\s+\d+\s+(.*)$`)

func metrics(out string) map[string]float64 {
	got := map[string]float64{}
	for _, m := range line.FindAllStringSubmatch(out, -1) {
		f := strings.Fields(m[1])
		for i := 0; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				got[f[i+1]] = v
			}
		}
	}
	return got
}

// machine is what a figure means nothing without.
func machine() string {
	kernel, _ := exec.Command("uname", "-rm").Output()
	version, _ := exec.Command("go", "env", "GOVERSION").Output()
	processors, _ := exec.Command("nproc").Output()
	return fmt.Sprintf("kernel %s, %s processors, load %s, %s", strings.TrimSpace(string(kernel)),
		strings.TrimSpace(string(processors)), load(), strings.TrimSpace(string(version)))
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
