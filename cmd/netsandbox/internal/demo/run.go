package demo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/netsandbox/netsandbox/backends/demonet"
)

// Run runs the demo and proves that nothing of it remains.
func Run(out, errs io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the demo makes namespaces and needs root: sudo netsandbox demo")
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	before, err := demonet.Look()
	if err != nil {
		return err
	}
	place, err := os.MkdirTemp("/var/tmp", "netsandbox-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, demonet.Clear(place)) }()
	cmd := exec.Command(exe, Command, "world", place)
	cmd.Stdout, cmd.Stderr = out, errs
	// What is set for the caller's own netsandbox is not meant for this one.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=dumb", "LANG=C.UTF-8"}
	played := demonet.World(cmd)
	after, err := demonet.Look()
	if err != nil {
		return err
	}
	if left := remains(before, after); len(left) > 0 {
		return fmt.Errorf("the demo left something behind: %s", strings.Join(left, "; "))
	}
	if played != nil {
		return fmt.Errorf("the story ended early: %w", played)
	}
	if err := demonet.Clear(place); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nNothing remains: no process, no control group, and links, addresses, routes, rules and mounts are as before.")
	return nil
}

// remains says what is there that was not, and what is not that was.
func remains(before, after []string) (out []string) {
	for _, l := range after {
		if !slices.Contains(before, l) {
			out = append(out, "new: "+l)
		}
	}
	for _, l := range before {
		if !slices.Contains(after, l) {
			out = append(out, "gone: "+l)
		}
	}
	return out
}

// world is PID 1: it furnishes the place and waits for the story.
func world(place string) (int, error) {
	if err := demonet.Furnish(place); err != nil {
		return 1, err
	}
	cmd := exec.Command("/proc/self/exe", Command, "story", place)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return demonet.Reap(cmd)
}
