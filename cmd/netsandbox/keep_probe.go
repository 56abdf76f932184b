package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

// dials returns a probe that connects to every required TCP circuit, all at
// once and each endpoint once. A circuit counts from its first success on: one
// that never answered cannot break, and may be what the change repairs.
func dials(circuits []circuit.Definition) func(context.Context) error {
	var lines []*line
	seen := map[string]bool{}
	for _, d := range circuits {
		key := d.Address + "@" + d.Interface
		if d.Required && d.Address != "" && d.Kind != circuit.Inbound && !seen[key] {
			seen[key] = true
			lines = append(lines, &line{Definition: d})
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return func(ctx context.Context) error {
		errs := make([]error, len(lines))
		var wg sync.WaitGroup
		for i, l := range lines {
			wg.Go(func() { errs[i] = l.try(ctx) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
}

// line is one circuit as the keeper sees it. Only one probe is under way at a
// time, so it needs no lock.
type line struct {
	circuit.Definition
	answered bool
}

func (l *line) try(ctx context.Context) error {
	d := net.Dialer{Control: bindTo(l.Interface)}
	c, err := d.DialContext(ctx, "tcp", l.Address)
	if err == nil {
		l.answered = true
		return c.Close()
	}
	if !l.answered {
		return nil
	}
	return fmt.Errorf("circuit %s: %w", l.Label, err)
}
