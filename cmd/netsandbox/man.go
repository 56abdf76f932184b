package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/man"
)

// newManCmd writes the manual pages, for packages and releases.
func newManCmd(*app) *cobra.Command {
	return &cobra.Command{
		Use:         "__man DIR",
		Short:       "Write the manual pages",
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: exits(),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, p := range manual(cmd.Root()) {
				f, err := renameio.NewPendingFile(filepath.Join(args[0], p.Name+".1"), renameio.WithPermissions(0o644))
				if err != nil {
					return fmt.Errorf("write manual page: %w", err)
				}
				if err := p.Write(f); err != nil {
					return errors.Join(err, f.Cleanup())
				}
				if err := f.CloseAtomicallyReplace(); err != nil {
					return fmt.Errorf("write manual page: %w", err)
				}
			}
			return nil
		},
	}
}

func manual(root *cobra.Command) []man.Page {
	return man.Pages(root, func(c *cobra.Command) string { return c.Annotations[annotTable] })
}
