package hot

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name string
		args string
		want Request
		ok   bool
		err  string
	}{
		{"another verb is not ours", "check e", Request{}, false, ""},
		{"no arguments are not ours", "", Request{}, false, ""},
		{"an unknown global flag is not ours", "--jsn exec e -- true", Request{}, false, ""},
		{"help of the program is not ours", "--help", Request{}, false, ""},
		{"a command after two dashes", "exec e -- ls -l", Request{Verb: "exec", Name: "e", Argv: []string{"ls", "-l"}}, true, ""},
		{"a command without dashes", "exec e ls -l", Request{Verb: "exec", Name: "e", Argv: []string{"ls", "-l"}}, true, ""},
		{"the command keeps flags that look like ours", "exec e -- ls --detach --json", Request{Verb: "exec", Name: "e", Argv: []string{"ls", "--detach", "--json"}}, true, ""},
		{"the command keeps its own dashes", "exec e -- sh -- x", Request{Verb: "exec", Name: "e", Argv: []string{"sh", "--", "x"}}, true, ""},
		{"detach after the name", "exec e --detach -- srv", Request{Verb: "exec", Name: "e", Detach: true, Argv: []string{"srv"}}, true, ""},
		{"detach before the name", "exec --detach e srv", Request{Verb: "exec", Name: "e", Detach: true, Argv: []string{"srv"}}, true, ""},
		{"global flags on both sides", "--state-dir /a exec --state-dir=/b e -- x", Request{Verb: "exec", Name: "e", StateDir: "/b", Argv: []string{"x"}}, true, ""},
		{"global flags that change nothing", "--json --log-level debug exec e x", Request{Verb: "exec", Name: "e", Argv: []string{"x"}}, true, ""},
		{"no name", "exec", Request{Verb: "exec"}, true, "name of an environment"},
		{"no name before the dashes", "exec -- true", Request{Verb: "exec", Argv: []string{"true"}}, true, "name of an environment"},
		{"no command", "exec e --", Request{Verb: "exec", Name: "e", Argv: []string{}}, true, "command is missing"},
		{"an unknown flag", "exec e --frob -- x", Request{Verb: "exec", Name: "e"}, true, "unknown flag: --frob"},
		{"a flag of enter", "exec e --shell sh -- x", Request{Verb: "exec", Name: "e"}, true, "unknown flag: --shell"},
		{"a flag without its argument", "enter e --shell", Request{Verb: "enter", Name: "e"}, true, "needs an argument"},
		{"help of the verb", "exec --help", Request{Verb: "exec"}, true, "help requested"},
		{"enter", "enter e --shell /bin/sh", Request{Verb: "enter", Name: "e", Shell: "/bin/sh", Argv: []string{}}, true, ""},
		{"enter with a command", "enter e ls", Request{Verb: "enter", Name: "e", Argv: []string{"ls"}}, true, "takes no command"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok, err := Parse(strings.Fields(tc.args))
			if ok != tc.ok {
				t.Fatalf("ok = %v, want %v", ok, tc.ok)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("err = %v, want %q", err, tc.err)
			}
			if !ok {
				return
			}
			if d := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestStateDir(t *testing.T) {
	env := func(kv map[string]string) func(string) string { return func(k string) string { return kv[k] } }
	for _, tc := range []struct {
		name, flag string
		env        map[string]string
		want       string
	}{
		{"the flag wins", "/flag", map[string]string{"NETSANDBOX_STATE_DIR": "/var"}, "/flag"},
		{"then the variable", "", map[string]string{"NETSANDBOX_STATE_DIR": "/var/x/"}, "/var/x"},
	} {
		got, err := StateDir(tc.flag, env(tc.env))
		if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v; want %q", tc.name, got, err, tc.want)
		}
	}
}
