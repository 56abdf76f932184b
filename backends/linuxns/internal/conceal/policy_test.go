package conceal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPolicyParses(t *testing.T) {
	rs, err := parse(policy)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, r := range rs {
		name := r.at
		if r.home {
			name = "~/" + name
		}
		if have[name] {
			t.Errorf("%s is there twice", name)
		}
		have[name] = true
	}
	for _, want := range []string{"/etc/shadow", "/etc/ssh/ssh_host_*_key", "~/.ssh", "~/.aws", "~/.config/gcloud", "~/.kube"} {
		if !have[want] {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestPolicyRefuses(t *testing.T) {
	for _, line := range []string{"show /etc/shadow", "hide etc/shadow", "hide ~/", "hide ~/../x", "hide /a/*/b", "hide", "hide /a/"} {
		if rs, err := parse(line); err == nil {
			t.Errorf("%q parsed as %v", line, rs)
		}
	}
}

func TestRedactKeepsAllButHashes(t *testing.T) {
	in := strings.Join([]string{
		"root:$y$j9T$salt$hash:19000:0:99999:7:::",
		"daemon:*:19000:0:99999:7:::",
		"locked:!$6$salt$hash:19000:0:99999:7:::",
		"never:!:19000:0:99999:7:::",
		"twice:!!:19000:0:99999:7:::",
		"open::19000:0:99999:7:::",
		"old:abJnggxhB/yWI:19000::::::",
		"no entry at all",
		"staff:$6$group$hash:root:alice",
		"short:$6$hash",
	}, "\n") + "\n"
	want := strings.Join([]string{
		"root:*:19000:0:99999:7:::",
		"daemon:*:19000:0:99999:7:::",
		"locked:!*:19000:0:99999:7:::",
		"never:!:19000:0:99999:7:::",
		"twice:!!:19000:0:99999:7:::",
		"open::19000:0:99999:7:::",
		"old:*:19000::::::",
		"staff:*:root:alice",
		"short:*",
	}, "\n") + "\n"
	if d := cmp.Diff(want, string(Redact([]byte(in)))); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
