package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends/nstest/versus"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// BenchmarkTrial measures how long a bad change hurts. A server listens as long
// as a file on the host says so, which a trial changes: from the first connection
// that is refused to the first that is answered again, seen by somebody who
// connects all the time, and as the program itself reports it. And a good trial
// is left alone by killing the applier: how long until the file is back.
func BenchmarkTrial(b *testing.B) {
	const addr = "127.0.0.1:7411"
	x := newBenchOn(b, (*testing.B).TempDir)
	gate := filepath.Join(x.base, "gate")
	if err := os.WriteFile(gate, []byte("up\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	b.Cleanup(stop)
	x.ns.Go(func() { gated(ctx, gate, addr) })
	watch := &prober{}
	x.ns.Go(func() { watch.run(ctx, addr) })
	x.until("the server answers", watch.answers)
	x.create("bench", "--relay", "7411")
	x.run("circuit", "add-tcp", "bench", "api", addr)
	var s versus.Series
	for b.Loop() {
		x.run("exec", "bench", "--", "sh", "-c", "echo down > "+gate)
		x.run("check", "bench")
		x.run("plan", "bench")
		watch.forget()
		var doc report.Applied
		if err := json.Unmarshal(x.exits(exitUndone, "--json", "apply", "bench", "--yes"), &doc); err != nil {
			b.Fatal(err)
		}
		x.until("the outage is over", func() bool { return watch.outage() > 0 })
		s.Took("outage", watch.outage())
		s.Add("reported-ms", doc.OutageMS)
		s.Took("undo", x.kill(gate))
	}
	s.Report(b)
}

// kill begins a trial that only changes what the file says after its first word,
// kills the applier, and returns how long the host kept the change.
func (x *bench) kill(gate string) time.Duration {
	x.b.Helper()
	x.run("exec", "bench", "--", "sh", "-c", "echo up and changed > "+gate)
	x.run("check", "bench")
	x.run("plan", "bench")
	apply := exec.Command(x.bin, "apply", "bench", "--yes", "--confirm-within", "60s")
	if err := apply.Start(); err != nil {
		x.b.Fatal(err)
	}
	x.until("the trial is on the host", func() bool { return holds(gate, "up and changed\n") })
	// Undo looks the same whether the trial had just begun or was going on for
	// long; the keeper must have its lease, which it has before the first change.
	begun := time.Now()
	if err := apply.Process.Kill(); err != nil {
		x.b.Fatal(err)
	}
	x.until("the host is as before", func() bool { return holds(gate, "up\n") })
	took := time.Since(begun)
	_ = apply.Wait() // it was killed
	x.until("the trial is over", func() bool { return x.status("bench").State == "rolledback" })
	return took
}

func holds(file, text string) bool {
	b, err := os.ReadFile(file)
	return err == nil && string(b) == text
}

// gated listens on addr while the file begins with "up".
func gated(ctx context.Context, file, addr string) {
	var ln net.Listener
	for ctx.Err() == nil {
		b, err := os.ReadFile(file)
		up := err == nil && len(b) > 1 && string(b[:2]) == "up"
		switch {
		case up && ln == nil:
			if ln, err = net.Listen("tcp", addr); err == nil {
				go accept(ln)
			}
		case !up && ln != nil:
			ln.Close()
			ln = nil
		}
		time.Sleep(time.Millisecond)
	}
	if ln != nil {
		ln.Close()
	}
}

func accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(io.Discard, c) // until the client is gone
			c.Close()
		}()
	}
}

// prober connects every millisecond.
type prober struct {
	mu       sync.Mutex
	up       bool
	down, at time.Time // first refused, first answered after it
}

func (w *prober) run(ctx context.Context, addr string) {
	for ctx.Err() == nil {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err == nil {
			// A thousand connections a second would soon have used up the ports if
			// each left one in TIME_WAIT.
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
		now := time.Now()
		w.mu.Lock()
		w.up = err == nil
		switch {
		case err != nil && w.down.IsZero():
			w.down = now
		case err == nil && !w.down.IsZero() && w.at.IsZero():
			w.at = now
		}
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

func (w *prober) answers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// forget begins anew; the last round's outage is over.
func (w *prober) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down, w.at = time.Time{}, time.Time{}
}

// outage is how long it took, 0 while it lasts or before it begins.
func (w *prober) outage() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at.IsZero() {
		return 0
	}
	return w.at.Sub(w.down)
}
