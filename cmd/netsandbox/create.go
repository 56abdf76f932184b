package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

func newCreateCmd(a *app) *cobra.Command {
	var o workflow.CreateOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a new environment and record what the host is like now",
		Long: `Make a new environment: a view of the host's files and network, and the baseline
of established connections that must survive. NAME matches [a-z0-9][a-z0-9._-]{0,62}.

A view does not show the secrets of others: password hashes, the keys of the SSH
server, keys and cloud credentials of users who do not own the environment. What is
hidden cannot be changed inside either, so useradd(8), say, needs
--show /etc/shadow --show /etc/gshadow. inspect lists the paths.`,
		Args:        cobra.ExactArgs(1),
		Annotations: exits(exitBlocked, exitBusy),
	}
	f := cmd.Flags()
	f.StringVar(&o.Description, "description", "", "a sentence for list and status")
	f.StringVar(&o.Base, "base", "/", "only paths below `DIR` can become changes")
	f.StringVar(&o.Backend, "backend", "linux", "what runs the view: linux")
	f.StringVar(&o.OnFailure, "on-failure", workflow.BlockApply, "what a Lost circuit does: warn, block-apply or stop")
	f.BoolVar(&o.AutoRollback, "auto-rollback", true, "undo a trial whose circuits fail on the host")
	f.BoolVar(&o.CaptureConnections, "capture-connections", true, "make circuits of the established connections")
	f.StringVar(&o.Authority, "authority", "root", "who may let a plan reach the host: root or terminal")
	f.Var((*ports)(&o.Relay), "relay", "host loopback `PORT` that the view reaches; repeatable")
	f.StringArrayVar(&o.Hide, "hide", nil, "cover `PATH` in the view, besides the secrets of others; repeatable")
	f.StringArrayVar(&o.Show, "show", nil, "leave `PATH` visible although it is hidden by default; repeatable")
	f.BoolVar(&o.NoDefaultHide, "no-default-hide", false, "hide nothing but what --hide names")
	cmd.RunE = a.change(func(ctx context.Context, w *workflow.Workflow, args []string) error {
		o.Name = args[0]
		doc, err := w.Create(ctx, o)
		return a.show(doc, err)
	})
	return cmd
}

// ports is a repeatable flag of TCP ports.
type ports []uint16

func (p *ports) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a port", s)
	}
	if !slices.Contains(*p, uint16(n)) {
		*p = append(*p, uint16(n))
	}
	return nil
}

func (p *ports) String() string {
	words := make([]string, len(*p))
	for i, n := range *p {
		words[i] = strconv.Itoa(int(n))
	}
	return strings.Join(words, ",")
}

func (p *ports) Type() string { return "port" }
