package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// version describes this build, as --json prints it.
type version struct {
	Schema   string `json:"schema"` // netsandbox/v1/version
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "Print which build this is",
		Args:        cobra.NoArgs,
		Annotations: exits(),
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			if a.json {
				return a.print(v)
			}
			words := []string{"netsandbox", v.Version}
			if v.Revision != "" {
				words = append(words, v.Revision)
			}
			if v.Modified {
				words = append(words, "(modified)")
			}
			_, err := fmt.Fprintln(a.streams.out, strings.Join(append(words, v.Go, v.Platform), " "))
			return err
		},
	}
}

func thisVersion() version {
	v := version{Schema: "netsandbox/v1/version", Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
