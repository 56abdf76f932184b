package linuxns

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
)

// blocked lists what stands against a plan, as "word name".
func (e *env) blocked(dir string) []string {
	e.t.Helper()
	d, err := e.view().Changes(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	var out []string
	for _, b := range d.Blockers {
		out = append(out, b.What+" "+strings.TrimPrefix(b.Subject, dir+"/"))
	}
	return out
}

func (e *env) want(dir string, want ...string) {
	e.t.Helper()
	if got := e.blocked(dir); !slices.Equal(got, want) {
		e.t.Errorf("blocked by %q, want %q", got, want)
	}
}

func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".new", content)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// age waits until what starts now is later than a file's last change, by more
// than the clock of files may be off.
func age(t *testing.T, path string) {
	t.Helper()
	var old, now unix.Stat_t
	until(t, "time passes", func() bool {
		stamp := t.TempDir() + "/stamp"
		write(t, stamp, "")
		if err := errors.Join(unix.Stat(path, &old), unix.Stat(stamp, &now)); err != nil {
			t.Fatal(err)
		}
		return now.Ctim.Nano()-old.Ctim.Nano() > int64(15*time.Millisecond)
	})
}

// While something lives on in a view, what a command left is dated as soon as it
// has ended: what the host does then is a conflict, not a doubt.
func TestOriginsAreWrittenDownBesideADaemon(t *testing.T) {
	dir := base(t)
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	e.detach("sleep", "1000")
	e.must("sh", "-c", "echo view >> "+dir+"/file")
	until(t, "the origin is recorded", func() bool {
		b, _ := os.ReadFile(e.spec.Dir + "/origins.log")
		return strings.Contains(string(b), dir+"/file")
	})
	write(t, dir+"/file", "host again\n")
	e.want(dir, "conflict file")
}

// A check's candidate keeps the view from being built again. A command that
// starts beside it, when nothing else lives, has seen what the host wrote before,
// except where the overlay serves an inode that the host has replaced.
func TestCommandBesideACheckIsDatedByItsStart(t *testing.T) {
	dir := base(t)
	for _, f := range []string{"a", "b", "c"} {
		write(t, dir+"/"+f, "v1\n")
	}
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := e.view().Canary(ctx, backends.InCandidate, shell("cat "+dir+"/*; exec sleep 1000"))
		done <- err
	}()
	defer func() { stop(); <-done }()
	until(t, "a view is there", func() bool { return e.status().Init != 0 })
	init := e.status().Init
	e.must("sh", "-c", "cat "+dir+"/*") // or the candidate may not have looked yet
	replace(t, dir+"/a", "v2\n")
	write(t, dir+"/b", "v2\n")
	age(t, dir+"/b")
	e.must("sh", "-c", "cd "+dir+"; for f in a b c; do echo app >> $f; done")
	if now := e.status().Init; now != init {
		t.Fatalf("the view was built again: %d, was %d", now, init)
	}
	e.want(dir, "origin-uncertain a")
}

// With a daemon that may have read the old b it is in doubt, too.
func TestCommandBesideADaemonIsDatedByItsStart(t *testing.T) {
	dir := base(t)
	for _, f := range []string{"a", "b", "c"} {
		write(t, dir+"/"+f, "v1\n")
	}
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	e.detach("sleep", "1000")
	e.must("sh", "-c", "cat "+dir+"/*")
	replace(t, dir+"/a", "v2\n")
	write(t, dir+"/b", "v2\n")
	age(t, dir+"/b")
	e.must("sh", "-c", "cd "+dir+"; for f in a b c; do echo app >> $f; done")
	e.want(dir, "origin-uncertain a", "origin-uncertain b")
}

// Staging goes into a view that nothing lives in, and is dated by itself.
func TestStagingFollowsTheHost(t *testing.T) {
	dir := base(t)
	write(t, dir+"/other", "v1\n")
	e := newEnv(t, func(s *backends.Spec) { s.Base = dir })
	candidate := t.TempDir() + "/candidate"
	write(t, candidate, "staged\n")
	if err := e.stage(dir+"/file", candidate); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/other", "v2\n")
	age(t, dir+"/other")
	if err := e.stage(dir+"/other", candidate); err != nil {
		t.Fatal(err)
	}
	e.want(dir)
}
