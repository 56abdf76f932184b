package bootunit

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

var update = flag.Bool("update", false, "rewrite the golden unit")

func TestMain(m *testing.M) { nstest.Main(m) }

func TestText(t *testing.T) {
	got, err := Unit{Exe: "/usr/local/bin/netsandbox", StateDir: "/var/lib/netsandbox"}.Text()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", Name)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("unit (-want +got):\n%s", d)
	}
}

func TestPathsThatAUnitCannotName(t *testing.T) {
	for _, u := range []Unit{
		{Exe: "netsandbox", StateDir: "/var/lib/netsandbox"},
		{Exe: "/usr/bin/netsandbox", StateDir: "state"},
		{Exe: `/opt/quo"te/netsandbox`, StateDir: "/var/lib/netsandbox"},
		{Exe: "/usr/bin/netsandbox", StateDir: "/var/lib/a\nExecStart=/bin/sh"},
	} {
		if text, err := u.Text(); err == nil {
			t.Errorf("%+v rendered as\n%s", u, text)
		}
	}
}

// systemd itself is asked, with paths that tempt it to expand and to split.
func TestSystemdAcceptsTheUnit(t *testing.T) {
	nstest.Require(t, nstest.Tool("systemd-analyze"))
	for _, name := range []string{"plain", "with space", "per%cent", `quo"te`, "dol$lar", `back\slash`} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			state := filepath.Join(root, name)
			exe := filepath.Join(state, "netsandbox")
			if strings.ContainsAny(name, "\"\\") {
				exe = filepath.Join(root, "netsandbox")
			}
			if err := os.MkdirAll(state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(exe, []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			text, err := Unit{Exe: exe, StateDir: state}.Text()
			if err != nil {
				t.Fatal(err)
			}
			unit := filepath.Join(root, Name)
			if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			said, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput()
			if err != nil || strings.Contains(string(said), Name) {
				t.Errorf("systemd-analyze verify (%v): %s", err, said)
			}
		})
	}
}

func TestInstalledMeansInPlaceAndEnabled(t *testing.T) {
	root := t.TempDir()
	u := Unit{Exe: "/usr/bin/netsandbox", StateDir: "/var/lib/netsandbox"}
	check := func(when string, want bool) {
		t.Helper()
		if got, err := u.Installed(root); got != want || err != nil {
			t.Errorf("%s: Installed = %v (%v), want %v", when, got, err, want)
		}
	}
	check("nothing there", false)
	text, err := u.Text()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, wantDir), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(s string) {
		if err := os.WriteFile(filepath.Join(root, Path), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	check("not enabled", false)
	if err := os.Symlink(Path, filepath.Join(root, Link)); err != nil {
		t.Fatal(err)
	}
	check("enabled", true)
	write(strings.Replace(text, "/var/lib/netsandbox", "/elsewhere", 1))
	check("of another state directory", false)
}
