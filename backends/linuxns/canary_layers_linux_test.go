package linuxns

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends"
)

// Each mount of the host is a layer of its own, and a canary has one on top of
// each; an alias must show the layer that it is an alias of.
func TestCandidateSeesEveryLayer(t *testing.T) {
	m := newMounted(t)
	m.mount("none", "tmpfs", 0, "size=1m", "disk")
	m.mount("none", "tmpfs", 0, "size=1m", "disk/below")
	e := newEnv(t)
	dir := m.path()
	e.must("sh", "-c", "echo one >"+dir+"/disk/file; echo two >"+dir+"/disk/below/file; echo three >"+dir+"/file")
	before, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := e.canary(backends.InCandidate, shell("cd "+dir+"; cat disk/file disk/below/file file; for f in disk/file disk/below/file file; do echo more >>$f; rm $f; done; echo x >disk/new"))
	if !got.OK() || got.Output != `one\x0atwo\x0athree\x0a` {
		t.Errorf("candidate: %+v", got)
	}
	if got := e.canary(backends.InControl, shell("cd "+dir+"; ls disk/file disk/below/file file 2>/dev/null; test -d disk/below")); !got.OK() || got.Output != "" {
		t.Errorf("control: %+v", got)
	}
	after, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, after); diff != "" {
		t.Errorf("the canary changed the layers (-before +after):\n%s", diff)
	}
}

// As root and everywhere: what a check runs must not be in what is planned.
func TestCanariesDoNotChangeTheDifference(t *testing.T) {
	e := newEnv(t)
	e.must("sh", "-c", "echo staged >/etc/canary-file; rm /etc/hostname; mkdir /etc/canary-dir")
	before, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(before.Changes) != 3 {
		t.Fatalf("changes: %+v", before)
	}
	for _, where := range worlds {
		e.canary(where, shell("echo x >>/etc/canary-file; echo x >/etc/hostname; rm -rf /etc/canary-dir /etc/passwd; touch /usr/new /var/tmp/new"))
	}
	after, err := e.view().Changes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, after); diff != "" {
		t.Errorf("canaries changed the difference (-before +after):\n%s", diff)
	}
}
