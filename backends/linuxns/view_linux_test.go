package linuxns

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// env is an environment under test.
type env struct {
	t    *testing.T
	b    *Backend
	spec backends.Spec
	made backends.Created
}

// newEnv creates an environment over the machine's own files; only copies of
// them are ever written.
func newEnv(t *testing.T, change ...func(*backends.Spec)) *env {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.Overlay)
	root := t.TempDir()
	e := &env{t: t, b: New(), spec: backends.Spec{
		Name: "test", ID: id(), StateRoot: root, Dir: filepath.Join(root, "environments", "test"), Base: "/",
	}}
	for _, c := range change {
		c(&e.spec)
	}
	if err := os.MkdirAll(e.spec.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	made, err := e.b.Create(t.Context(), e.spec)
	if err != nil {
		t.Fatal(err)
	}
	e.made = made
	t.Cleanup(func() {
		if err := e.view().Discard(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func id() string {
	b := make([]byte, 13)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (e *env) view() backends.View { return e.b.Open(e.spec) }

// run runs a command and returns its status and what it wrote.
func (e *env) run(argv ...string) (int, string) {
	e.t.Helper()
	var out bytes.Buffer
	status, err := e.b.Exec(e.t.Context(), e.spec, backends.ExecRequest{
		Argv: argv, Env: os.Environ(), Cwd: "/", Stdout: &out, Stderr: &out,
	})
	if err != nil {
		out.WriteString(err.Error())
	}
	return status, out.String()
}

func TestExec(t *testing.T) {
	e := newEnv(t)
	t.Logf("%+v", e.made)
	status, out := e.run("sh", "-c", "id; echo hello > /etc/nsb-test; mount | head -40; ls -la /dev /run; ls -la /proc/1/fd; cat /proc/self/status | grep -i cap; exit 7")
	t.Log(status, out)
	status, out = e.run("cat", "/etc/nsb-test")
	t.Log(status, out)
}
