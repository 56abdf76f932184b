package text

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
	"github.com/netsandbox/netsandbox/workflow/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	at  = time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)
	sec = 3.4

	conf = change.Change{
		Kind: change.KindFile, Op: change.Modified, Path: "/etc/proxy/config",
		Old: &change.Entry{Type: change.Regular, Mode: 0o644, Size: 120, SHA256: "aa"},
		New: &change.Entry{Type: change.Regular, Mode: 0o600, UID: 33, GID: 33, Size: 140, SHA256: "bb"},
	}
	link = change.Change{
		Kind: change.KindFile, Op: change.Replaced, Path: "/etc/proxy/\x1b[2Jd",
		Old: &change.Entry{Type: change.Directory, Mode: 0o755},
		New: &change.Entry{Type: change.Symlink, Target: "../else where"},
	}
	// kinds has one of every kind that a line of changes shows in another way.
	kinds = []change.Change{
		{Op: change.Added, Path: "/s/pipe", New: &change.Entry{Type: change.Fifo, Mode: 0o600, UID: 7}},
		{Op: change.Replaced, Path: "/s/was-dir", Old: &change.Entry{Type: change.Directory}, New: &change.Entry{Type: change.Regular, Mode: 0o644, Size: 3 << 30, Sparse: true, SHA256: "aa"}},
		{Op: change.Modified, Path: "/s/image", Old: &change.Entry{Type: change.Regular, Size: 10, SHA256: "aa"}, New: &change.Entry{Type: change.Regular, Size: 5 << 30, Sparse: true, SHA256: "bb"}},
		{Op: change.Modified, Path: "/s/shrunk", Old: &change.Entry{Type: change.Regular, Size: 5 << 30, SHA256: "aa"}, New: &change.Entry{Type: change.Regular, Size: 10, SHA256: "bb"}},
		{Op: change.Added, Path: "/s/tool", New: &change.Entry{Type: change.Regular, Mode: 0o755, SHA256: "aa", Xattrs: map[string][]byte{"security.capability": {1, 0, 0, 2, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "user.k": []byte("v")}}},
		{Op: change.Modified, Path: "/s/noted", Old: &change.Entry{Type: change.Directory}, New: &change.Entry{Type: change.Directory, Xattrs: map[string][]byte{"user.k": []byte("two words")}}},
		{Op: change.Added, Path: "/s/second", New: &change.Entry{Type: change.Regular, Mode: 0o644, Link: "/s/first"}},
		{Op: change.Modified, Path: "/s/joined", Old: &change.Entry{Type: change.Regular, Mode: 0o644}, New: &change.Entry{Type: change.Regular, Mode: 0o644, Link: "/s/first"}},
		{Op: change.Modified, Path: "/s/link", Old: &change.Entry{Type: change.Symlink, Target: "a", UID: 1}, New: &change.Entry{Type: change.Symlink, Target: "b"}},
		{Op: change.Modified, Path: "/s/owned", Old: &change.Entry{Type: change.Symlink, Target: "a", UID: 1}, New: &change.Entry{Type: change.Symlink, Target: "a"}},
	}
	gone    = change.Change{Kind: change.KindFile, Op: change.Deleted, Path: "/etc/proxy/old", Old: &change.Entry{Type: change.Regular}}
	blocker = change.Blocker{What: "device", Subject: "/etc/proxy/null", Reason: "a device cannot be part of a plan", Fix: "netsandbox reset edge /etc/proxy/null"}

	lost = report.Circuit{
		Definition: circuit.Definition{ID: "c-1", Label: "api\nheart\x07beat", Kind: circuit.Canary, Required: true, Argv: []string{"/usr/bin/curl", "--token", "s3cret"}},
		Result:     circuit.Lost, Reason: "connect: connection refused", AgeS: &sec, Baseline: "exit 0",
	}
	kept = report.Circuit{
		Definition: circuit.Definition{ID: "c-2", Label: "gateway", Kind: circuit.TCP, Address: "203.0.113.10:443", Interface: "eth0"},
		Result:     circuit.Preserved, AgeS: &sec,
	}
	refusal  = guards.Refusal{Guard: states.CircuitsFresh, Reason: "not checked in the last minute", Subjects: []string{"gateway (75 s ago)"}, Fix: "netsandbox check edge"}
	leftover = backends.Leftover{Subject: "/etc/proxy/config", Found: "sha256 cc", Wanted: "sha256 aa", Fix: "cp -a BACKUP /etc/proxy/config"}
	txn      = report.Transaction{ID: "apply-20260301-123000-ab12", Env: "edge", Status: "trial", Begun: at, Keeper: 77, Paths: []change.Path{"/etc/proxy/config", "/etc/proxy/old"}}
	env      = report.Environment{Name: "edge", ID: "01J", State: states.Checked, Cycle: 2, Backend: "linux", Base: "/", Description: "new proxy", Created: at}
	status   = report.Status{
		Environment: env, Evidence: &sec, Circuits: []report.Circuit{kept}, Txn: &txn,
		View:  backends.Status{Holder: 10, Init: 11, Mode: "shifted", Processes: []backends.Process{{PID: 12, Comm: "sleep"}}, Notes: []string{"link wg0 (wireguard) is in the twin a tun"}},
		Next:  &report.Next{On: states.Plan, To: states.Planned, Command: "netsandbox plan edge", Guards: []report.GuardLine{{Guard: states.ChangesPresent, Holds: true}, {Guard: states.CircuitsFresh, Refusal: &refusal}}},
		Notes: []string{"the keeper undid apply-1"},
	}
	plan = report.Plan{
		Name: "edge", Digest: "sha256:0011", Cycle: 2, Base: "/", Changes: []change.Change{conf, gone},
		Commands: []string{"install -m 0600 config /etc/proxy/config", "rm /etc/proxy/old"}, Circuits: []report.Circuit{kept},
		Policy: report.Policy{OnFailure: "block-apply", AutoRollback: true, Authority: "root"}, Weakened: []string{"c-1 ignored by uid 0"},
		Processes: []string{"pid 12 sleep"}, Irreversible: []string{"12 processes end"}, Notes: []string{"c-2 is insensitive"},
	}
	grant = report.Grant{Name: "edge", ID: "g-1", Plan: "sha256:0011", By: "uid 0", How: "--yes", Until: at, Used: true}
)

// routes are what a candidate of another gateway changes.
var routes = []string{"ip route replace default via 192.0.2.254", "ip route replace inet6 default via 2001:db8:1::fe"}

func network(subject string) change.Blocker {
	return change.Blocker{Subject: subject, Reason: "a change of the network cannot be applied yet", Fix: "netsandbox reset edge --network"}
}

// documents holds one of everything that can be printed.
var documents = map[string]any{
	"created": report.Created{
		Name: "edge", State: states.Created, Backend: "linux", Mode: "shifted", Base: "/", Circuits: 1, Notes: []string{"no freezer here"},
		Mounts: []backends.Mount{{Point: "/", FS: "ext4", Treatment: "layer"}, {Point: "/proc", FS: "proc", Treatment: "excluded", Reason: "the view has its own"}, {Point: "/mnt/nas", FS: "nfs4", Treatment: "read-only", Reason: "cannot be layered"}},
		Covers: []backends.Cover{{Path: "/etc/shadow", How: backends.Redacted, Why: "password hashes"}},
		Next:   "netsandbox exec edge -- COMMAND",
	},
	"created-notes":   report.Created{Name: "edge", Mode: "shifted", Notes: strings.Split("link wg0 (wireguard) is in the twin a tun,b,c,d,e,f,g,h", ","), Next: "netsandbox exec edge -- COMMAND"},
	"staged":          report.Staged{Name: "edge", Path: "/etc/x", Candidate: "/etc/x"},
	"staged-delete":   report.Staged{Name: "edge", Path: "/etc/x", Deleted: true},
	"changes":         report.Changes{Name: "edge", Changes: []change.Change{conf, link, gone}, Blockers: []change.Blocker{blocker}, Ephemeral: []change.Change{conf}, Network: []string{"+ route 10.0.0.0/8 via 192.0.2.1"}},
	"changes-network": report.Changes{Name: "edge", Network: routes, Blockers: []change.Blocker{network(routes[0]), network(routes[1])}},
	"changes-kinds":   report.Changes{Name: "edge", Changes: kinds},
	"changes-none":    report.Changes{Name: "edge"},
	"diff":            report.Diff{Name: "edge", Files: []report.FileDiff{{Path: "/etc/x", Text: "--- /etc/x\n+++ /etc/x\n@@ -1 +1 @@\n-a\n+\tb\x1b[2J\n"}, {Path: "/etc/y", Text: "/etc/y: mode 0644 -> 0600"}}},
	"diff-network":    report.Diff{Name: "edge", Network: routes},
	"diff-none":       report.Diff{Name: "edge"},
	"check":           report.Check{Name: "edge", From: states.Exercised, To: states.Checked, OK: true, Circuits: []report.Circuit{kept}},
	"check-lost":      report.Check{Name: "edge", From: states.Exercised, To: states.Exercised, Circuits: []report.Circuit{lost, kept}, Refusals: []guards.Refusal{refusal}},
	"check-again":     report.Check{Name: "edge", From: states.Created, To: states.Created, OK: true},
	"plan":            plan,
	"grant":           grant,
	"dry-run":         report.DryRun{Name: "edge", Would: true, Steps: []states.Trigger{states.Plan, states.Authorize, states.Try}, Changes: []change.Change{conf}},
	"dry-run-not":     report.DryRun{Name: "edge", Refusals: []guards.Refusal{refusal}, Blockers: []change.Blocker{blocker}},
	"applied":         report.Applied{Name: "edge", Txn: txn.ID, Outcome: "committed", Changes: 2, Circuits: []report.Circuit{kept}, Warnings: []string{"c-1 lost"}},
	"rolled-back":     report.Applied{Name: "edge", Txn: txn.ID, Outcome: "rolled_back", Reason: "circuit gateway is lost", OutageMS: 412.6},
	"incomplete":      report.Applied{Name: "edge", Txn: txn.ID, Outcome: "incomplete", Left: []backends.Leftover{leftover}},
	"already":         []report.Applied{{Name: "edge", Txn: txn.ID, Outcome: "already_rolled_back"}},
	"moved":           report.Moved{Name: "edge", On: states.Revoke, From: states.Authorized, To: states.Planned, Note: "grant g-1 is revoked"},
	"deleted":         report.Moved{Name: "edge", On: "discard", From: states.Staged, To: states.Staged, Note: "transactions stay"},
	"stayed":          report.Moved{Name: "edge", From: states.Created, To: states.Created},
	"advanced":        []report.Moved{{Name: "edge", On: states.Check, From: states.Staged, To: states.Checked}},
	"advanced-none":   []report.Moved{},
	"circuits":        report.Circuits{Name: "edge", Circuits: []report.Circuit{lost, kept}},
	"circuits-none":   report.Circuits{Name: "edge"},
	"list":            []report.Environment{env, {Name: "other", State: states.Created, Owner: 1000, Base: "/home/a", Created: at}},
	"list-none":       []report.Environment{},
	"status":          status,
	"status-made":     report.Status{Environment: report.Environment{Name: "edge", State: states.Created, Base: "/"}},
	"status-trial":    report.Status{Environment: report.Environment{Name: "edge", State: states.Trial, Base: "/"}, Txn: &txn},
	"status-idle":     report.Status{Environment: env, View: backends.Status{Holder: 10}},
	"status-lost":     report.Status{Environment: env, View: backends.Status{TwinLost: true}},
	"inspect":         report.Inspect{Status: status, Spec: backends.Spec{ID: "01J", Dir: "/var/lib/netsandbox/envs/01J"}, Policy: plan.Policy, Plan: &plan, Grants: []report.Grant{grant}, Transactions: []report.Transaction{txn}, Resources: []report.Resource{{Kind: "cgroup", Name: "netsandbox/01J", Status: "made"}}, Covers: []backends.Cover{{Path: "/etc/shadow", How: backends.Redacted, Why: "password hashes"}}, CoverNotes: []string{"/etc/krb5.keytab has 2 names on the host; only this one is hidden"}},
	"history":         []report.Transaction{txn},
	"history-pruned":  []report.Transaction{{ID: "apply-1", Env: "edge", Status: "committed", Begun: at, Pruned: true}},
	"pruned": report.Pruned{
		Transactions: []report.PrunedTxn{{ID: "apply-1", Env: "edge", Status: "committed", FreedBytes: 12288, Paths: []change.Path{"/etc/x"}}},
		Plans:        1, FreedBytes: 20480, Kept: []report.KeptTxn{{ID: "apply-2", Env: "edge", Why: "it is incomplete"}},
	},
	"pruned-kept": report.Pruned{
		Transactions: []report.PrunedTxn{{ID: "apply-1", Env: "edge", Status: "committed", FreedBytes: 900, Reversible: true}}, FreedBytes: 900,
	},
	"pruned-none":  report.Pruned{},
	"history-none": []report.Transaction{},
	"events":       []report.Event{{Seq: 1, At: at, Event: "state.moved", Env: "edge", Txn: "apply-1", Data: map[string]any{"to": "checked", "from": "staged", "why": "two words\x1b", "n": 3}}},
	"doctor":       report.Doctor{Ready: true, Findings: []backends.Finding{{Name: "overlay", Status: "ok", Detail: "mounted one"}, {Name: "freezer", Status: "missing", Detail: "cgroup v1", Fix: "boot with cgroup v2"}}},
	"doctor-not":   report.Doctor{},
	"recovered":    report.Recovered{Done: []report.Recovery{{Txn: "apply-1", Outcome: "rolled_back", Reason: "applier died"}}, Swept: []string{"cgroup netsandbox/01J"}, Left: []backends.Leftover{leftover}},
	"recovered-no": report.Recovered{},
}

func TestDocumentsPrintAsRecorded(t *testing.T) {
	for name, doc := range documents {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := (Printer{W: &out}).Print(doc); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), out.String()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestNothingPrintedSteersATerminal(t *testing.T) {
	for name, doc := range documents {
		var out bytes.Buffer
		if err := (Printer{W: &out}).Print(doc); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), steers) {
			t.Errorf("%s: control bytes in %q", name, out.String())
		}
		if strings.Contains(out.String(), "s3cret") {
			t.Errorf("%s: shows an argument of a canary", name)
		}
	}
}

func TestColorMarksOnlyTheMark(t *testing.T) {
	var out bytes.Buffer
	if err := (Printer{W: &out, Color: true}).Print(documents["doctor"]); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[32m✓\x1b[0m overlay: ok: mounted one\n\x1b[31m✗\x1b[0m freezer: missing: cgroup v1\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %q, want it to begin with %q", out.String(), want)
	}
}

func TestUnknownDocumentIsAnError(t *testing.T) {
	if err := (Printer{W: new(bytes.Buffer)}).Print(42); err == nil {
		t.Error("printed an int")
	}
}

func TestSafeLeavesSafeTextAlone(t *testing.T) {
	for in, want := range map[string]string{
		"plain":          "plain",
		`already \x1b`:   `already \x1b`,
		"tab\tline\n":    "tab\tline\n",
		"bell\a":         `bell\x07`,
		"bad\xff":        `bad\xff`,
		"csi\u009b":      `csi\xc2\x9b`,
		"bidi\u202etxt":  `bidi\xe2\x80\xaetxt`,
		"überall und 日本": "überall und 日本",
	} {
		if got := Safe(in); got != want {
			t.Errorf("Safe(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTablesCutLongTextInTheMiddle(t *testing.T) {
	long := "/srv/" + strings.Repeat("é", 100) + "/proxy.conf"
	got := short(long)
	if n := len([]rune(got)); n != wide || !strings.HasPrefix(got, "/srv/") || !strings.HasSuffix(got, "/proxy.conf") {
		t.Errorf("short gives %d runes: %q", n, got)
	}
	if got := short("short enough"); got != "short enough" {
		t.Errorf("short text became %q", got)
	}
}
