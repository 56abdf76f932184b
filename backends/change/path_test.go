package change

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

var names = []string{
	"", "/", "/etc/hosts", "/a\nb", "/-n", "/trail ", "/\xff\xfe", "/\x1b[2J", `/back\slash`, `/\x41`, "/tab\t",
	"/é", "/\u202eevil", "/\u2066x", "/\u0085", "/\ufffd", "/e\u0301", "/'q'", "/$(x)", "/\x7f", "/日本",
}

func FuzzEscapeRoundTrip(f *testing.F) {
	for _, n := range names {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := Escape(s)
		back, err := Unescape(e)
		if err != nil || back != s {
			t.Fatalf("%q became %q and then %q, %v", s, e, back, err)
		}
		if !utf8.ValidString(e) {
			t.Fatalf("%q became invalid UTF-8 %q", s, e)
		}
		for _, r := range e {
			if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
				t.Fatalf("%q became %q, which holds %U", s, e, r)
			}
		}
		var p Path
		b, err := json.Marshal(Path(s))
		if err == nil {
			err = json.Unmarshal(b, &p)
		}
		if err != nil || p != Path(s) {
			t.Fatalf("%q came back from JSON as %q, %v", s, p, err)
		}
	})
}

// Whatever text comes in, unescaping refuses it or gives what escapes to it in
// canonical form.
func FuzzUnescape(f *testing.F) {
	for _, n := range append([]string{`\`, `\x`, `\x4`, `\xzz`, `\x4g`, `\y41`, `\x+1`}, names...) {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := Unescape(s)
		if err != nil {
			return
		}
		if again, err := Unescape(Escape(u)); err != nil || again != u {
			t.Fatalf("%q gave %q and that %q, %v", s, u, again, err)
		}
	})
}

func TestUnescapeRefusesHalfEscapes(t *testing.T) {
	for _, s := range []string{`\`, `a\x`, `\x4`, `\xg0`, `\n`, `\x+1`, `\x 1`} {
		if got, err := Unescape(s); err == nil {
			t.Errorf("Unescape(%q) = %q, want an error", s, got)
		}
	}
}

// bash reads a quoted word back as it was; that is what quoting is for.
func TestQuoteIsOneWordForAShell(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatalf("this test needs bash: %v", err)
	}
	for _, n := range names {
		q := Quote(n)
		cmd := exec.Command(bash, "-c", "printf '%s.' "+q)
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		out, err := cmd.Output()
		if err != nil || strings.TrimSuffix(string(out), ".") != n {
			t.Errorf("Quote(%q) = %s, which bash reads as %q, %v", n, q, out, err)
		}
		for _, r := range q {
			if r < 0x20 || r == 0x7f || r >= 0x202a && r <= 0x202e {
				t.Errorf("Quote(%q) = %q holds %U", n, q, r)
			}
		}
	}
	for _, n := range []string{"/etc/hosts", "a=b", "x@y:1"} {
		if Quote(n) != n {
			t.Errorf("Quote(%q) = %s, want it plain", n, Quote(n))
		}
	}
}
