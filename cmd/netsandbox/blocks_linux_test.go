package main

import (
	"regexp"

	"github.com/rogpeppe/go-internal/testscript"
)

// blocksCmd holds that a plan is refused by a name that matches, and makes the
// network anew for the next: `blocks ENVIRONMENT REGEXP`.
func blocksCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: blocks ENVIRONMENT REGEXP")
	}
	ts.Check(ts.Exec("netsandbox", "check", args[0]))
	exitsCmd(ts, false, []string{"2", "netsandbox", "plan", args[0]})
	if said := ts.ReadFile("stderr"); !regexp.MustCompile(`changes-representable: .*` + args[1]).MatchString(said) {
		ts.Fatalf("plan does not name %s:\n%s", args[1], said)
	}
	ts.Check(ts.Exec("netsandbox", "reset", args[0], "--network", "--stop"))
}
