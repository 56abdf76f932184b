package plan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/change"
)

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// layerOf returns an opener of files with the given content by path.
func layerOf(t *testing.T, files map[change.Path]string) func(change.Path) (*os.File, error) {
	dir := t.TempDir()
	for p, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(string(p))), []byte(content), 0o600))
	}
	return func(p change.Path) (*os.File, error) { return os.Open(filepath.Join(dir, filepath.Base(string(p)))) }
}

func sampleLayer(t *testing.T) func(change.Path) (*os.File, error) {
	return layerOf(t, map[change.Path]string{"/etc/a": "new a", "/etc/b": "new b"})
}

func TestFreezeAndOpen(t *testing.T) {
	s, p := NewStore(t.TempDir()), sample()
	must(t, s.Freeze(t.Context(), p, sampleLayer(t)))
	f, err := s.Open(p.Digest())
	must(t, err)
	if d := cmp.Diff(p, f.Plan); d != "" {
		t.Errorf("plan (-frozen +read):\n%s", d)
	}
	must(t, f.Verify(t.Context()))
	r, err := f.Open(hashOf("new a"))
	must(t, err)
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "new a" {
		t.Errorf("wanted content %q, %v", b, err)
	}
	if _, err := f.Open("../plan.json"); err == nil {
		t.Error("a path was opened as a hash")
	}
	onlyPublished(t, s)
}

func TestFreezeKeepsOneCopyOfEqualFiles(t *testing.T) {
	s, p := NewStore(t.TempDir()), sample()
	p.Changes[1].New = p.Changes[0].New
	must(t, s.Freeze(t.Context(), p, layerOf(t, map[change.Path]string{"/etc/a": "new a", "/etc/b": "new a"})))
	f, err := s.Open(p.Digest())
	must(t, err)
	if n := len(f.wants()); n != 1 {
		t.Errorf("%d files kept, want 1", n)
	}
}

func TestFreezeRefusesALayerThatMoved(t *testing.T) {
	for name, files := range map[string]map[change.Path]string{
		"other content":              {"/etc/a": "new a", "/etc/b": "evil"},
		"same size":                  {"/etc/a": "new a", "/etc/b": "new c"},
		"a file is gone":             {"/etc/a": "new a"},
		"the second of equal hashes": {"/etc/a": "new b", "/etc/b": "new b"},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := NewStore(t.TempDir()), sample()
			if err := s.Freeze(t.Context(), p, layerOf(t, files)); !errors.Is(err, ErrMoved) {
				t.Errorf("error %v, want %v", err, ErrMoved)
			}
			if _, err := s.Open(p.Digest()); !errors.Is(err, ErrNotFound) {
				t.Errorf("open: %v, want %v", err, ErrNotFound)
			}
			onlyPublished(t, s)
		})
	}
}

func TestFreezeAgainKeepsFilesAndRefreshesTheRest(t *testing.T) {
	s, p := NewStore(t.TempDir()), sample()
	must(t, s.Freeze(t.Context(), p, sampleLayer(t)))
	p.Cycle, p.Processes = 4, []string{"pid 9 sleep"}
	nothing := func(change.Path) (*os.File, error) { return nil, errors.New("must not be opened") }
	must(t, s.Freeze(t.Context(), p, nothing))
	f, err := s.Open(p.Digest())
	must(t, err)
	if f.Cycle != 4 || len(f.Processes) != 1 {
		t.Errorf("cycle %d processes %v, want those of the second plan", f.Cycle, f.Processes)
	}
}

func TestDamage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		verify bool // only reading every byte finds it
	}{
		{name: "plan.json cut", damage: func(t *testing.T, dir string) { must(t, os.Truncate(dir+"/plan.json", 40)) }},
		{name: "plan.json gone", damage: func(t *testing.T, dir string) { must(t, os.Remove(dir+"/plan.json")) }},
		{name: "a wanted mode edited", damage: func(t *testing.T, dir string) { replaceIn(t, dir+"/plan.json", `"mode": 420`, `"mode": 511`) }},
		{name: "a circuit edited", damage: func(t *testing.T, dir string) {
			replaceIn(t, dir+"/plan.json", `"required": true`, `"required": false`)
		}},
		{name: "another schema", damage: func(t *testing.T, dir string) { replaceIn(t, dir+"/plan.json", Schema, "netsandbox/v9/plan") }},
		{name: "a file gone", damage: func(t *testing.T, dir string) { must(t, os.Remove(dir+"/blobs/"+hashOf("new a"))) }},
		{name: "a file cut", damage: func(t *testing.T, dir string) { must(t, os.Truncate(dir+"/blobs/"+hashOf("new a"), 2)) }},
		{name: "a file replaced by a link", damage: func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/blobs/"+hashOf("new a")))
			must(t, os.Symlink("/etc/passwd", dir+"/blobs/"+hashOf("new a")))
		}},
		{name: "a file of the same size", verify: true, damage: func(t *testing.T, dir string) {
			must(t, os.WriteFile(dir+"/blobs/"+hashOf("new a"), []byte("evil!"), 0o600))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, p := NewStore(t.TempDir()), sample()
			must(t, s.Freeze(t.Context(), p, sampleLayer(t)))
			dir, err := s.Path(p.Digest())
			must(t, err)
			tt.damage(t, dir)
			f, err := s.Open(p.Digest())
			if tt.verify && err == nil {
				err = f.Verify(t.Context())
			}
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("error %v, want %v", err, ErrDamaged)
			}
			must(t, s.Freeze(t.Context(), p, sampleLayer(t))) // planning again repairs it
			f, err = s.Open(p.Digest())
			must(t, err)
			must(t, f.Verify(t.Context()))
			onlyPublished(t, s)
		})
	}
}

func TestOpenOfStrangeDigests(t *testing.T) {
	s := NewStore(t.TempDir())
	for _, d := range []string{"", "sha256:", "sha256:../../etc", "sha256:" + strings.Repeat("A", 64), strings.Repeat("a", 64), "sha256:" + strings.Repeat("a", 64)} {
		if _, err := s.Open(d); !errors.Is(err, ErrNotFound) {
			t.Errorf("open %q: %v, want %v", d, err, ErrNotFound)
		}
	}
}

func TestPruneKeepsWhatIsAskedFor(t *testing.T) {
	s, a, b := NewStore(t.TempDir()), sample(), sample()
	b.Env = "other"
	for _, p := range []*Plan{a, b} {
		must(t, s.Freeze(t.Context(), p, sampleLayer(t)))
	}
	must(t, os.Mkdir(filepath.Join(s.dir, staging+"left"), 0o700))
	must(t, s.Prune(func(d string) bool { return d == a.Digest() }))
	if _, err := s.Open(a.Digest()); err != nil {
		t.Errorf("the kept plan: %v", err)
	}
	if _, err := s.Open(b.Digest()); !errors.Is(err, ErrNotFound) {
		t.Errorf("the other plan: %v, want %v", err, ErrNotFound)
	}
	onlyPublished(t, s)
}

func TestFreezeStopsWhenCancelled(t *testing.T) {
	s, p := NewStore(t.TempDir()), sample()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Freeze(ctx, p, sampleLayer(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	onlyPublished(t, s)
}

func TestHostIDIsStableAndNotTheMachineID(t *testing.T) {
	state := t.TempDir()
	a, err := HostID(state)
	must(t, err)
	b, err := HostID(state)
	must(t, err)
	id, _ := os.ReadFile("/etc/machine-id")
	if a != b || len(a) != 32 || a == strings.TrimSpace(string(id)) {
		t.Errorf("ids %q and %q", a, b)
	}
}

// onlyPublished wants nothing in the store but whole plans and its lock.
func onlyPublished(t *testing.T, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	must(t, err)
	for _, e := range entries {
		if !isHash(e.Name()) && e.Name() != ".lock" {
			t.Errorf("%s was left in the store", e.Name())
		}
	}
}

func replaceIn(t *testing.T, name, old, new string) {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	if !strings.Contains(string(b), old) {
		t.Fatalf("%s holds no %q", name, old)
	}
	must(t, os.WriteFile(name, []byte(strings.Replace(string(b), old, new, 1)), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
