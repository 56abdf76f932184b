package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestEveryVerbHasAManualPage(t *testing.T) {
	pages := manual(newRootCmd(&app{streams: standard()}))
	have := map[string]string{}
	for _, p := range pages {
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		have[p.Name] = b.String()
	}
	for _, name := range []string{"netsandbox", "netsandbox-apply", "netsandbox-circuit-add-tcp", "netsandbox-recover", "netsandbox-exec"} {
		if have[name] == "" {
			t.Errorf("no page %s among %d", name, len(pages))
		}
	}
	for name, text := range have {
		if strings.Contains(name, "__") {
			t.Errorf("%s is hidden and has a page", name)
		}
		for _, want := range []string{".TH ", ".SH NAME\n", ".SH SYNOPSIS\n", ".SH \"DESCRIPTION\"\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
		if name != "netsandbox" && !strings.Contains(text, ".SH \"EXIT STATUS\"\n") {
			t.Errorf("%s does not say what its exit codes mean", name)
		}
	}
	apply := have["netsandbox-apply"]
	for _, want := range []string{`.B \-\-confirm\-within duration`, "rollback itself could not be completed", ".BR netsandbox (1)\n"} {
		if !strings.Contains(apply, want) {
			t.Errorf("the page of apply lacks %q:\n%s", want, apply)
		}
	}
}
