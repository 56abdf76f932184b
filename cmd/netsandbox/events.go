package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newEventsCmd(a *app) *cobra.Command {
	var follow bool
	var since string
	cmd := &cobra.Command{
		Use:   "events [NAME]",
		Short: "Print the journal, one event a line",
		Long: `Print the journal, of one environment or of all. With --json it is an array, and
with --follow one document a line.`,
		Args:              cobra.MaximumNArgs(1),
		Annotations:       exits(),
		ValidArgsFunction: a.names,
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what happens, until interrupted")
	cmd.Flags().StringVar(&since, "since", "", "from `T` on: a time as 2006-01-02T15:04:05Z, or how long ago as 90s, 10m, 2h")
	cmd.RunE = a.read(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		var o workflow.EventsOptions
		if len(args) > 0 {
			o.Name = args[0]
		}
		var err error
		if o.Since, err = instant(since, time.Now()); err != nil {
			return err
		}
		if !follow {
			docs, err := w.Events(ctx, o)
			return a.show(docs, err)
		}
		return a.follow(ctx, w, o)
	})
	return cmd
}

// follow prints events as they are recorded. The journal is other processes', so
// it is asked again and again; half a second is soon enough for a reader.
func (a *app) follow(ctx context.Context, w *workflow.Workflow, o workflow.EventsOptions) error {
	a.stream()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		docs, err := w.Events(ctx, o)
		if err != nil {
			return err
		}
		for _, d := range docs {
			o.After = d.Seq
			if err := a.print(d); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// instant reads a moment, or how long ago it was.
func instant(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage(fmt.Errorf("--since %q is neither a time nor a duration", s))
}
