package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/rs/zerolog"

	"github.com/netsandbox/netsandbox/cmd/netsandbox/internal/text"
)

// renderer prints one document.
type renderer interface {
	Print(doc any) error
}

func (a *app) newRenderer() renderer {
	if a.json {
		return jsonRenderer{w: a.streams.out}
	}
	return text.Printer{W: a.streams.out, Color: !a.noColor && terminal(a.streams.out)}
}

// jsonRenderer prints a document as JSON; with lines, one line each.
type jsonRenderer struct {
	w     io.Writer
	lines bool
}

func (r jsonRenderer) Print(doc any) error {
	if v := reflect.ValueOf(doc); v.Kind() == reflect.Slice && v.IsNil() {
		doc = []any{} // an empty list is a list
	}
	e := json.NewEncoder(r.w)
	e.SetEscapeHTML(false)
	if !r.lines {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(doc); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}

// show prints the result of a step that has one, and passes its error on.
func (a *app) show(doc any, err error) error {
	if err != nil {
		return err
	}
	return a.print(doc)
}

func (a *app) print(doc any) error {
	a.shown = true
	a.spin.clear()
	return a.out.Print(doc)
}

// stream makes the renderer print one document a line, for what follows or
// repeats.
func (a *app) stream() {
	if a.json {
		a.out = jsonRenderer{w: a.streams.out, lines: true}
	}
}

// newLogger makes the logger of --log-format and --log-level. Without a format
// asked for, people are not shown what the answer says anyway.
func (a *app) newLogger() (zerolog.Logger, error) {
	format, level := a.logFormat, a.logLevel
	if v := os.Getenv("NETSANDBOX_LOG_FORMAT"); v != "" && format == "auto" {
		format = v
	}
	if v := os.Getenv("NETSANDBOX_LOG_LEVEL"); v != "" && level == "" {
		level = v
	}
	if level == "" {
		level = "error"
		if format != "auto" {
			level = "info"
		}
	}
	lvl, err := zerolog.ParseLevel(strings.ToLower(level))
	if err != nil {
		return zerolog.Nop(), usage(fmt.Errorf("unknown log level %q", level))
	}
	w := a.err
	switch {
	case format == "console", format == "auto" && terminal(a.err):
		w = zerolog.ConsoleWriter{Out: a.err, NoColor: a.noColor || !terminal(a.err), TimeFormat: "15:04:05"}
	case format != "json" && format != "auto":
		return zerolog.Nop(), usage(fmt.Errorf("unknown log format %q: auto, json or console", format))
	}
	return zerolog.New(w).Level(lvl).With().Timestamp().Logger(), nil
}

// yes refuses a destructive verb without --yes.
func yes(given bool, what string) error {
	if given {
		return nil
	}
	return usageHint(errors.New(what+"; it needs --yes"), "add --yes")
}
