// Mutate asks the tests of the machine whether they would notice.
//
// It takes away, one at a time, every move of the table, every guard of every
// move, every demotion, every guard altogether, and every condition inside a
// guard (the condition then never holds), and runs the tests of states, guards
// and workflow. A mutant that no test fails on is a hole in the tests; the
// program names it and ends with status 1.
//
// All mutants are compiled into the test binaries at once, through an overlay
// of the sources, and one is switched on by an environment variable. Building
// three hundred times would take an hour; this takes seconds, and nothing in the
// tree is touched.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// suites are the packages whose tests must notice. Drawings are left out: a golden
// file notices everything and understands nothing. The random walks take one
// seed, so that the printed count does not change from run to run.
var suites = []suite{
	{"states", []string{"-test.skip=^TestDrawings"}},
	{"guards", nil},
	{"guards/circuit", nil},
	{"guards/authority", nil},
	{"workflow", []string{
		"-test.run=^(TestDecide|TestMachine)",
		"-rapid.seed=1", "-rapid.checks=200", "-rapid.nofailfile", "-rapid.shrinktime=1ms",
	}},
}

type suite struct {
	pkg  string
	args []string
}

func main() {
	verbose := flag.Bool("v", false, "run all tests for every mutant and name those that noticed")
	only := flag.String("only", "", "try only mutants that match this regular expression")
	flag.Parse()
	if err := mutate(context.Background(), *verbose, *only); err != nil {
		fmt.Fprintf(os.Stderr, "mutate: %v\n", err)
		os.Exit(1)
	}
}

func mutate(ctx context.Context, verbose bool, only string) error {
	filter, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	mutants, overlay, err := plant(root, dir)
	if err != nil {
		return err
	}
	mutants = slices.DeleteFunc(mutants, func(m string) bool { return !filter.MatchString(m) })
	binaries, err := build(ctx, root, dir, overlay)
	if err != nil {
		return err
	}
	// Without a mutant everything must pass, or every mutant would seem killed.
	if killers, err := binaries.try(ctx, "", true); err != nil || len(killers) > 0 {
		return fmt.Errorf("tests fail without any mutant: %s", join(killers, err))
	}

	results := make([][]string, len(mutants))
	errs := make([]error, len(mutants))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.NumCPU())
	for i, m := range mutants {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			results[i], errs[i] = binaries.try(ctx, m, verbose)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return tell(mutants, results, verbose)
}

// tell prints the verdict and returns an error when something survived.
func tell(mutants []string, results [][]string, verbose bool) error {
	killed := 0
	for i, m := range mutants {
		switch {
		case len(results[i]) == 0:
			fmt.Printf("SURVIVED %s\n", m)
		case verbose:
			fmt.Printf("killed %s by %s\n", m, strings.Join(results[i], ", "))
			fallthrough
		default:
			killed++
		}
	}
	kinds := map[string]int{}
	for _, m := range mutants {
		kind, _, _ := strings.Cut(m, ":")
		kinds[kind]++
	}
	fmt.Printf("mutate: %d moves, %d demotions, %d guards on moves, %d guards, %d conditions\n",
		kinds["edge"], kinds["else"], kinds["edge-guard"], kinds["guard"], kinds["condition"])
	fmt.Printf("mutate: %d of %d mutants killed by a named test\n", killed, len(mutants))
	if killed < len(mutants) {
		return fmt.Errorf("%d mutants survived", len(mutants)-killed)
	}
	return nil
}

// binaries are the compiled test suites, with the directory each runs in.
type binaries []binary

type binary struct {
	path, dir string
	args      []string
}

func build(ctx context.Context, root, dir, overlay string) (binaries, error) {
	var bs binaries
	for _, s := range suites {
		b := binary{
			path: filepath.Join(dir, strings.ReplaceAll(s.pkg, "/", "-")+".test"),
			dir:  filepath.Join(root, s.pkg), args: s.args,
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", b.path, "./"+s.pkg)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build tests of %s: %w\n%s", s.pkg, err, out)
		}
		bs = append(bs, b)
	}
	return bs, nil
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try switches a mutant on and returns the tests that fail: of the first suite
// that notices, or of all. A suite that dies without naming a test is an error:
// only a named test is an answer.
func (bs binaries) try(ctx context.Context, mutant string, all bool) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var killers []string
	for _, b := range bs {
		cmd := exec.CommandContext(ctx, b.path, b.args...)
		cmd.Dir = b.dir
		cmd.Env = append(os.Environ(), switchVar+"="+mutant)
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		names := failure.FindAllStringSubmatch(string(out), -1)
		if len(names) == 0 {
			return nil, fmt.Errorf("mutant %q: %s ended without naming a test: %w\n%s", mutant, filepath.Base(b.path), err, out)
		}
		for _, n := range names {
			killers = append(killers, strings.TrimSuffix(filepath.Base(b.path), ".test")+"."+n[1])
		}
		if !all {
			break
		}
	}
	return killers, nil
}

func join(killers []string, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.Join(killers, ", ")
}
