package hot

import (
	"errors"
	"fmt"
	"strings"
)

// Request is one exec or enter as the command line has it.
type Request struct {
	Verb     string // "exec" or "enter"
	Name     string
	StateDir string // --state-dir, not yet resolved
	Detach   bool   // exec
	Shell    string // enter
	Argv     []string
}

// ErrHelp: help was asked for.
var ErrHelp = errors.New("help requested")

// Parse reads the arguments of the program. A verb other than exec and enter is
// no error: ok is false.
//
// It is a parser of its own because the real one initialises too late, and
// because what follows the name belongs to somebody else's command: only what
// comes before "--", or before the command where there is no "--", is ours.
func Parse(args []string) (r Request, ok bool, err error) {
	p := parser{args: args}
	for len(p.args) > 0 && strings.HasPrefix(p.args[0], "-") {
		// Before the verb only global flags are looked at; what is wrong with
		// them is for the command line proper to say.
		if known, err := p.flag(&r); !known || err != nil {
			return r, false, nil
		}
	}
	if len(p.args) == 0 || p.args[0] != "exec" && p.args[0] != "enter" {
		return r, false, nil
	}
	r.Verb, p.args = p.args[0], p.args[1:]
	return r, true, p.verb(&r)
}

type parser struct{ args []string }

// verb reads what follows the verb.
func (p *parser) verb(r *Request) error {
	for len(p.args) > 0 {
		switch a := p.args[0]; {
		case a == "--":
			p.args = p.args[1:]
			return p.command(r)
		case len(a) > 1 && a[0] == '-':
			known, err := p.flag(r)
			if err != nil {
				return err
			}
			if !known {
				return fmt.Errorf("unknown flag: %s", a)
			}
		case r.Name == "":
			r.Name, p.args = a, p.args[1:]
		default:
			return p.command(r)
		}
	}
	return p.command(r)
}

// command takes the rest as the command.
func (p *parser) command(r *Request) error {
	r.Argv = p.args
	switch {
	case r.Name == "":
		return errors.New("the name of an environment is missing")
	case r.Verb == "exec" && len(r.Argv) == 0:
		return errors.New("a command is missing after --")
	case r.Verb == "exec" && r.Argv[0] == "":
		return errors.New("the command is empty")
	case r.Verb == "enter" && len(r.Argv) > 0:
		return fmt.Errorf("enter takes no command; use: netsandbox exec %s -- COMMAND", r.Name)
	}
	return nil
}

// flag consumes one flag and says whether it knows it.
func (p *parser) flag(r *Request) (known bool, err error) {
	name, value, has := strings.Cut(p.args[0], "=")
	take := func(to *string) (bool, error) {
		if has {
			p.args = p.args[1:]
		} else if len(p.args) > 1 {
			value, p.args = p.args[1], p.args[2:]
		} else {
			return true, fmt.Errorf("flag needs an argument: %s", name)
		}
		*to = value
		return true, nil
	}
	ignored := ""
	switch {
	case name == "--state-dir":
		return take(&r.StateDir)
	case name == "--log-format", name == "--log-level":
		return take(&ignored) // nothing is logged on this way
	case name == "--shell" && r.Verb == "enter":
		return take(&r.Shell)
	case has:
		return false, nil
	case name == "--detach" && r.Verb == "exec":
		r.Detach = true
	case name == "--json", name == "--no-color":
		// The output is the command's own.
	case name == "--help", name == "-h":
		return true, ErrHelp
	default:
		return false, nil
	}
	p.args = p.args[1:]
	return true, nil
}
