package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/guards/circuit"
)

// sample is a plan with something in every field that the digest covers.
func sample() *Plan {
	file := func(content string) *change.Entry {
		return &change.Entry{Type: change.Regular, Mode: 0o644, Size: int64(len(content)), SHA256: hashOf(content)}
	}
	return &Plan{
		Schema: Schema, Env: "web", EnvID: "01JD0000000000000000000000", Cycle: 3, Backend: "linux", Base: "/", HostID: "aa", Layer: "sha256:l",
		Changes: []change.Change{
			{Kind: change.KindFile, Op: change.Modified, Path: "/etc/a", Old: file("old a"), New: file("new a")},
			{Kind: change.KindFile, Op: change.Added, Path: "/etc/b", New: file("new b")},
			{Kind: change.KindFile, Op: change.Deleted, Path: "/etc/c", Old: file("old c")},
		},
		Circuits: []circuit.Definition{
			{ID: "c1", Label: "api", Kind: circuit.Canary, Required: true, Argv: []string{"curl", "x"}, UID: 7, Groups: []uint32{7, 4}},
			{ID: "c2", Label: "ssh", Kind: circuit.TCP, Address: "192.0.2.1:22"},
		},
		Policy:   Policy{OnFailure: "block-apply", AutoRollback: true, Authority: "root", BootRecovery: "unit"},
		Weakened: []string{"circuit ssh ignored by uid 0", "b"},
	}
}

// The digest is in journals, grants and people's notes: a changed encoding would
// make every one of them refer to nothing.
func TestDigestIsStable(t *testing.T) {
	const golden = "sha256:cba3dc0872f222dea4a02af4727397d7e93e978ac9e4887768efa9d973085c44"
	if got := sample().Digest(); got != golden {
		t.Errorf("digest %s, want %s", got, golden)
	}
}

func TestDigestCoversWhatAuthorityIsGivenFor(t *testing.T) {
	seen := map[string]string{sample().Digest(): "nothing changed"}
	for name, edit := range map[string]func(*Plan){
		"environment id":       func(p *Plan) { p.EnvID += "X" },
		"environment name":     func(p *Plan) { p.Env = "other" },
		"backend":              func(p *Plan) { p.Backend = "vm" },
		"base":                 func(p *Plan) { p.Base = "/srv" },
		"host":                 func(p *Plan) { p.HostID = "bb" },
		"wanted content":       func(p *Plan) { p.Changes[1].New.SHA256 = hashOf("other") },
		"wanted mode":          func(p *Plan) { p.Changes[1].New.Mode = 0o600 },
		"origin content":       func(p *Plan) { p.Changes[0].Old.SHA256 = hashOf("other") },
		"origin owner":         func(p *Plan) { p.Changes[2].Old.UID = 1 },
		"one change less":      func(p *Plan) { p.Changes = p.Changes[:2] },
		"circuit command":      func(p *Plan) { p.Circuits[0].Argv = []string{"curl", "y"} },
		"circuit argument cut": func(p *Plan) { p.Circuits[0].Argv = []string{"curl x"} },
		"circuit not required": func(p *Plan) { p.Circuits[0].Required = false },
		"circuit address":      func(p *Plan) { p.Circuits[1].Address = "192.0.2.2:22" },
		"circuit removed":      func(p *Plan) { p.Circuits = p.Circuits[:1] },
		"circuit user":         func(p *Plan) { p.Circuits[0].UID = 0 },
		"on failure":           func(p *Plan) { p.Policy.OnFailure = "warn" },
		"automatic rollback":   func(p *Plan) { p.Policy.AutoRollback = false },
		"boot recovery":        func(p *Plan) { p.Policy.BootRecovery = "none" },
		"authority":            func(p *Plan) { p.Policy.Authority = "signed" },
		"weakened":             func(p *Plan) { p.Weakened = p.Weakened[:1] },
		"weakened, joined":     func(p *Plan) { p.Weakened = []string{strings.Join(p.Weakened, "")} },
	} {
		p := sample()
		edit(p)
		d := p.Digest()
		if other, taken := seen[d]; taken {
			t.Errorf("%s has the same digest as %s", name, other)
		}
		seen[d] = name
	}
}

func TestDigestLeavesOutWhatDependsOnTheMoment(t *testing.T) {
	want := sample().Digest()
	for name, edit := range map[string]func(*Plan){
		"cycle":        func(p *Plan) { p.Cycle++ },
		"processes":    func(p *Plan) { p.Processes = []string{"pid 1 x"} },
		"irreversible": func(p *Plan) { p.Irreversible = []string{"x"} },
		"notes":        func(p *Plan) { p.Notes = []string{"x"} },
		"inode":        func(p *Plan) { p.Changes[0].Old.ID = &change.Identity{Ino: 4} },
		"time":         func(p *Plan) { p.Changes[0].New.MTime = 4 },
		"group order":  func(p *Plan) { p.Circuits[0].Groups = []uint32{4, 7} },
	} {
		p := sample()
		edit(p)
		if got := p.Digest(); got != want {
			t.Errorf("%s changes the digest", name)
		}
	}
}

func TestDigestDoesNotDependOnOrder(t *testing.T) {
	want := sample().Digest()
	rapid.Check(t, func(t *rapid.T) {
		p := sample()
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(p.Changes), func(i, j int) { p.Changes[i], p.Changes[j] = p.Changes[j], p.Changes[i] })
		r.Shuffle(len(p.Circuits), func(i, j int) { p.Circuits[i], p.Circuits[j] = p.Circuits[j], p.Circuits[i] })
		r.Shuffle(len(p.Weakened), func(i, j int) { p.Weakened[i], p.Weakened[j] = p.Weakened[j], p.Weakened[i] })
		order := fmt.Sprint(p.Circuits, p.Changes)
		if got := p.Digest(); got != want {
			t.Fatalf("digest %s, want %s", got, want)
		}
		if fmt.Sprint(p.Circuits, p.Changes) != order {
			t.Fatal("taking the digest reordered the plan")
		}
	})
}
