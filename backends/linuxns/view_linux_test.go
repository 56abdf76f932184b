package linuxns

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// env is an environment under test.
type env struct {
	t    testing.TB
	b    *Backend
	spec backends.Spec
	made backends.Created
}

// newEnv creates an environment over the machine's own files, of which only
// copies are ever written.
func newEnv(t testing.TB, change ...func(*backends.Spec)) *env {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.UserNS, nstest.IDMap)
	e := plainEnv(t, t.TempDir(), change...)
	e.create()
	return e
}

// plainEnv is an environment that is not created yet.
func plainEnv(t testing.TB, root string, change ...func(*backends.Spec)) *env {
	t.Helper()
	e := &env{t: t, b: New(), spec: backends.Spec{
		Name: "test", ID: newID(), StateRoot: root, Base: "/",
	}}
	e.spec.Dir = filepath.Join(root, "environments", e.spec.ID)
	for _, c := range change {
		c(&e.spec)
	}
	if err := os.MkdirAll(e.spec.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *env) create() {
	e.t.Helper()
	made, err := e.b.Create(e.t.Context(), e.spec)
	if err != nil {
		e.t.Fatal(err)
	}
	e.made = made
	e.t.Cleanup(func() {
		if err := e.view().Discard(context.Background()); err != nil {
			e.t.Error(err)
		}
	})
}

func newID() string {
	b := make([]byte, 13)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (e *env) view() backends.View { return e.b.Open(e.spec) }

// request is a command with this process's surroundings.
func request(argv ...string) backends.ExecRequest {
	return backends.ExecRequest{Argv: argv, Env: os.Environ(), Cwd: "/"}
}

// exec runs a request and returns its status and what was written, by the
// command or about it.
func (e *env) exec(r backends.ExecRequest) (int, string) {
	e.t.Helper()
	var out bytes.Buffer
	r.Stdout, r.Stderr = &out, &out
	status, err := e.b.Exec(e.t.Context(), e.spec, r)
	if err != nil {
		out.WriteString(err.Error())
	}
	return status, out.String()
}

func (e *env) run(argv ...string) (int, string) {
	e.t.Helper()
	return e.exec(request(argv...))
}

func (e *env) sh(script string) (int, string) {
	e.t.Helper()
	return e.run("sh", "-c", script)
}

// must runs a command that has to succeed and returns its output.
func (e *env) must(argv ...string) string {
	e.t.Helper()
	status, out := e.run(argv...)
	if status != 0 {
		e.t.Fatalf("%q: status %d: %s", argv, status, out)
	}
	return out
}

// detach starts a command that goes on living in the view.
func (e *env) detach(argv ...string) {
	e.t.Helper()
	r := request(argv...)
	r.Detach = true
	if status, out := e.exec(r); status != 0 {
		e.t.Fatalf("%q: status %d: %s", argv, status, out)
	}
}

func (e *env) status() backends.Status {
	e.t.Helper()
	s, err := e.view().Status(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

// live keeps the view alive, which otherwise ends with its last command, and
// returns its PID 1.
func (e *env) live() int {
	e.t.Helper()
	e.detach("sleep", "1000")
	return e.status().Init
}

// until waits for a condition.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	end := time.Now().Add(15 * time.Second)
	for !f() {
		if time.Now().After(end) {
			t.Fatalf("not within 15 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// upper returns the path of a host path's entry in the root layer.
func (e *env) upper(path string) string {
	return filepath.Join(e.spec.Dir, "layers", "root", "upper", path)
}

func itoa(n int) string { return strconv.Itoa(n) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}
