package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netsandbox/netsandbox/workflow"
)

// codeTable is the contract on exit codes in words.
var codeTable = []struct {
	code    int
	meaning string
}{
	{exitDone, "done"},
	{exitFailed, "could not do it"},
	{exitBlocked, "blocked: connectivity validation or another guard refused; nothing was changed"},
	{exitUndone, "the change was applied and then rolled back"},
	{exitIncomplete, "rollback itself could not be completed: the report says what is left and how to finish"},
	{exitUsage, "wrong usage"},
	{exitBusy, "busy: another command holds the environment or the host; try again"},
	{exitInterrupted, "interrupted; nothing left half done"},
}

// Annotations of a verb that its help text is made from.
const (
	annotExits = "exits" // codes besides those that every verb has
	annotDone  = "done"  // what 0 means, where it is more than "done"
	annotChild = "child" // the verb returns the status of a command
	annotTable = "table" // the EXIT STATUS section made of these
)

// helpTemplate is the library's own with the exit codes at the end.
const helpTemplate = `{{with (or .Long .Short)}}{{. | trimTrailingWhitespaces}}

{{end}}{{.UsageString}}{{with index .Annotations "table"}}
EXIT STATUS
{{.}}
{{end}}`

// exits annotates a verb with the codes it may return besides 0, 1, 64 and 130.
func exits(codes ...int) map[string]string {
	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = strconv.Itoa(c)
	}
	return map[string]string{annotExits: strings.Join(words, " ")}
}

// done says what 0 means.
func done(meaning string, annotations map[string]string) map[string]string {
	annotations[annotDone] = meaning
	return annotations
}

// document gives every runnable verb its EXIT STATUS section, and lets the app
// know when its body begins: what fails before that is wrong usage.
func (a *app) document(c *cobra.Command) {
	for _, sub := range c.Commands() {
		a.document(sub)
	}
	if c.Long == "" {
		c.Long = c.Short + "."
	}
	if body := c.RunE; body != nil {
		c.Annotations[annotTable] = exitSection(c.Annotations)
		c.RunE = func(cmd *cobra.Command, args []string) error {
			a.began = true
			return body(cmd, args)
		}
	}
}

// strictHelp makes help of what is no verb wrong usage; the library's own command
// answers with the help of everything and success.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = func(_ *cobra.Command, args []string) error {
				_, _, err := root.Find(args)
				return err
			}
		}
	}
}

// useLine says how a command is used, in one line.
func useLine(c *cobra.Command) string {
	if !c.HasParent() || c.HasSubCommands() {
		return c.CommandPath() + " --help"
	}
	return strings.TrimSuffix(c.UseLine(), " [flags]")
}

// usageOf says what corrects wrong usage: the line, or where the flags are told
// when the line is nothing but the name.
func usageOf(c *cobra.Command) string {
	if line := useLine(c); line != c.CommandPath() {
		return line
	}
	return c.CommandPath() + " --help"
}

func exitSection(a map[string]string) string {
	if a[annotChild] != "" {
		return "  that of the command, 128+N when signal N ended it\n" +
			"  125  netsandbox itself failed or refused\n  126  the command is not executable\n  127  the command was not found"
	}
	has := append(strings.Fields(a[annotExits]), "0", "1", "64", "130")
	var b strings.Builder
	for _, row := range codeTable {
		if !slices.Contains(has, strconv.Itoa(row.code)) {
			continue
		}
		meaning := row.meaning
		if row.code == exitDone && a[annotDone] != "" {
			meaning = a[annotDone]
		}
		fmt.Fprintf(&b, "  %-3d  %s\n", row.code, meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:   use + " COMMAND",
		Short: short,
		Args:  cobra.ArbitraryArgs,
		// A parent without a body would answer a mistyped subcommand with its help
		// and success.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageHint(errors.New(use+": a command is missing"), cmd.CommandPath()+" --help")
			}
			return usageHint(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), cmd.CommandPath()+" --help")
		},
		Annotations: exits(),
	}
	c.AddCommand(subs...)
	return c
}

// usageHint is wrong usage with the way to do it.
func usageHint(err error, hint string) error {
	return &workflow.HintError{Err: usage(err), Hint: hint}
}

// names completes the name of an environment in the first place.
func (a *app) names(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var found []string
	err := a.begin()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	o, err := a.options()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	w, err := workflow.OpenRead(cmd.Context(), o)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	envs, err := w.List(cmd.Context())
	if e := w.Close(); err != nil || e != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, e := range envs {
		found = append(found, cobra.CompletionWithDesc(e.Name, string(e.State)))
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
