package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
	"github.com/netsandbox/netsandbox/workflow/report"
)

// survivors runs rows of the table, each in a tree of its own.
type survivors struct {
	*crashWorld // base is the row's
	place       string
	trees       int
	marked      map[string]int // by tool, objects of hosts with overlayfs's attributes
	back        int            // rows that were taken back to the byte
}

// tree makes a row's host. All of it has one time, as a host that was there before
// anybody came.
func (s *survivors) tree(row survival, name string) (root string) {
	s.t.Helper()
	s.trees++
	root = filepath.Join(s.place, fmt.Sprint(s.trees), name)
	if err := os.MkdirAll(root, 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.shell(root, row.host)
	s.shell(root, `find . -exec touch -h -d @1000000000 {} +`)
	return root
}

// surviveScript is how every fragment is run.
func surviveScript(fragment string) string {
	return "set -eu\numask 022\nlarge=8388608\n" + fragment
}

// viewed is a view's fragment, with one time for all that it made: a copy made in
// the same tick of the clock would have that time by accident.
func viewed(fragment string) string {
	return fragment + "\nfind . -newermt @1600000000 -exec touch -h -d @1500000000 {} +"
}

func (s *survivors) shell(dir, fragment string) {
	s.t.Helper()
	cmd := exec.Command("sh", "-c", surviveScript(fragment))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v: %s", fragment, err, out)
	}
}

func (s *survivors) look(root string, inodes bool) []string {
	s.t.Helper()
	lines, err := manifest.Read(root, manifest.Options{Inodes: inodes, Skip: func(name string) bool { return strings.HasPrefix(name, ".netsandbox-") }})
	if err != nil {
		s.t.Fatal(err)
	}
	return lines
}

// meanwhile does what the row has the host do, and starts its program.
func (s *survivors) meanwhile(row survival, root string) (end func()) {
	s.t.Helper()
	s.shell(root, row.meanwhile)
	var cmd *exec.Cmd
	if row.running != "" {
		cmd = exec.Command(filepath.Join(root, row.running), "infinity")
		if err := cmd.Start(); err != nil {
			s.t.Fatal(err)
		}
	}
	return func() {
		if cmd != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		s.shell(root, `chattr -R -f -i . || :`)
	}
}

// ours is what became of a row by our own program.
func (s *survivors) ours(row survival) string {
	s.base = s.tree(row, "host")
	s.must("create", "e", "--base", s.base, "--capture-connections=false")
	defer s.patiently("discard", "e", "--yes")
	if _, err := s.run("exec", "e", "--", "sh", "-c", "cd "+s.base+"\n"+surviveScript(viewed(row.view))); err != nil {
		return "cannot be made inside"
	}
	wanted := strings.Split(strings.TrimSuffix(s.must("exec", "e", "--", filepath.Join(s.bin, "lab"), "manifest", s.base), "\n"), "\n")
	defer s.meanwhile(row, s.base)()
	wanted, changes, left := s.withoutOwned(wanted)
	before := s.look(s.base, true)
	if row.killed {
		return s.killedApply(row, before)
	}
	_, err := s.run("apply", "e", "--yes")
	got := s.look(s.base, true)
	s.marked["ours"] += bookkeeping(s.t, s.base)
	var exit *exec.ExitError
	switch {
	case err == nil:
	case changes == 0 && row.meanwhile == "":
		return "**not a change**, nothing to apply"
	case errors.As(err, &exit) && cmp.Equal(before, got):
		return fmt.Sprintf("refused, nothing touched, exit %d", exit.ExitCode())
	default:
		s.t.Errorf("%s: %v (-before +after):\n%s", row.name, err, cmp.Diff(before, got))
		return "**failed**"
	}
	what := lost(before, wanted, s.look(s.base, false))
	s.patiently("rollback", s.settled().ID, "--yes")
	if diff := cmp.Diff(before, s.look(s.base, true)); diff != "" {
		s.t.Errorf("%s: rollback (-before +after):\n%s", row.name, diff)
	} else {
		s.back++
	}
	if len(what) == 0 && left {
		return "left to its owner, as `changes` says"
	}
	return survived(what, 0)
}

// withoutOwned drops from a picture what the program says is its owner's to make,
// and counts the changes that it sees.
func (s *survivors) withoutOwned(wanted []string) (rest []string, changes int, some bool) {
	s.t.Helper()
	var d report.Changes
	if err := json.Unmarshal([]byte(s.must("changes", "e", "--json")), &d); err != nil {
		s.t.Fatal(err)
	}
	for _, e := range d.Ephemeral {
		rel := "." + strings.TrimPrefix(string(e.Path), s.base)
		wanted = slices.DeleteFunc(wanted, func(l string) bool { path, _, _ := strings.Cut(l, " "); return path == rel })
	}
	return wanted, len(d.Changes) + len(d.Blockers), len(d.Ephemeral) > 0
}

// killedApply kills the applier in the swap. An apply that was through before it
// could be killed is taken back and tried again.
func (s *survivors) killedApply(row survival, before []string) string {
	for range 10 {
		apply := s.command("apply", "e", "--yes")
		if err := s.killHalfway(apply, s.base); err != nil {
			s.t.Fatal(err)
		}
		last := s.settled()
		if last.Status == "undone" {
			if diff := cmp.Diff(before, s.look(s.base, true)); diff != "" {
				s.t.Errorf("killed (-before +after):\n%s", diff)
			}
			return "undone at once, to the byte"
		}
		s.patiently("rollback", last.ID, "--yes")
		s.patiently("exec", "e", "--", "sh", "-c", "cd "+s.base+"\n"+surviveScript(viewed(row.view)))
	}
	s.t.Fatal("never killed in the middle")
	return ""
}

// killHalfway starts a command in a process group of its own, and kills the group
// when some of the host's thousand files are other ones.
func (s *survivors) killHalfway(cmd *exec.Cmd, root string) error {
	stamp := func(n int) (st unix.Stat_t) {
		_ = unix.Lstat(filepath.Join(root, fmt.Sprint(n)), &st)
		st.Atim = unix.Timespec{}
		return st
	}
	var samples []int
	old := map[int]unix.Stat_t{}
	for n := 25; n <= 1000; n += 25 {
		samples = append(samples, n)
		old[n] = stamp(n)
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	deadline := time.Now().Add(time.Minute)
	for {
		done := 0
		for _, n := range samples {
			if stamp(n) != old[n] {
				done++
			}
		}
		select {
		case <-ended:
			return nil
		default:
		}
		if done >= len(samples)/5 || time.Now().After(deadline) {
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			<-ended
			return nil
		}
	}
}

// survived is one cell of the table.
func survived(lost []string, exit int) string {
	text := "kept"
	if len(lost) > 0 {
		text = "**lost**: " + strings.Join(lost, ", ")
	}
	if exit != 0 || len(lost) > 0 {
		text += fmt.Sprintf("; exit %d", exit)
	}
	return text
}

// copies is what became of a row by a program that copies a tree over another:
// that of the view as it looks, or its upper layer as it is. The host that it
// writes to is a second one, made by the same commands, because the kernel does
// not say what happens to a mounted overlay whose lower layer is written to.
func (s *survivors) copies(row survival, layer, tool string, argv ...string) string {
	lower := s.tree(row, "lower")
	host := s.tree(row, "host")
	at := filepath.Dir(lower)
	s.overlay(at)
	defer func() {
		if err := unix.Unmount(filepath.Join(at, "merged"), 0); err != nil {
			s.t.Error(err)
		}
	}()
	s.shell(filepath.Join(at, "merged"), viewed(row.view))
	wanted := s.look(filepath.Join(at, "merged"), false)
	defer s.meanwhile(row, host)()
	before := s.look(host, false)
	cmd := func() *exec.Cmd {
		return exec.Command(argv[0], append(argv[1:], filepath.Join(at, layer)+"/.", host+"/")...)
	}
	if row.killed {
		return s.killedCopy(cmd, host)
	}
	err := cmd().Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	got := s.look(host, false)
	s.marked[tool+" "+layer] += bookkeeping(s.t, host)
	code := 0
	if exit != nil {
		code = exit.ExitCode()
	}
	switch {
	case row.harm == "":
		return survived(lost(before, wanted, got), code)
	case len(lost(before, before, got)) == 0:
		return fmt.Sprintf("nothing done; exit %d", code)
	}
	return fmt.Sprintf("**%s**; exit %d", row.harm, code)
}

func (s *survivors) killedCopy(cmd func() *exec.Cmd, host string) string {
	for range 10 {
		if err := s.killHalfway(cmd(), host); err != nil {
			s.t.Fatal(err)
		}
		done := 0
		for n := 1; n <= 1000; n++ {
			if b, err := os.ReadFile(filepath.Join(host, fmt.Sprint(n))); err == nil && string(b) == "two\n" {
				done++
			}
		}
		if 0 < done && done < 1000 {
			return "**half done**, and left so"
		}
		s.shell(host, `for n in $(seq 1000); do echo one > $n; done; find . -exec touch -h -d @1000000000 {} +`)
	}
	s.t.Fatal("never killed in the middle")
	return ""
}

// overlay mounts what a view has, with a view's options.
func (s *survivors) overlay(at string) {
	s.t.Helper()
	for _, name := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	s.shell(at, "touch -r lower upper")
	opts := fmt.Sprintf("lowerdir=%s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work,redirect_dir=nofollow,metacopy=off,index=off,xino=auto", at)
	if err := unix.Mount("overlay", filepath.Join(at, "merged"), "overlay", unix.MS_NODEV, opts); err != nil {
		s.t.Fatal(err)
	}
}

// newSurvivors is where the rows are run. Call nstest.New before.
func newSurvivors(t *testing.T) *survivors {
	t.Helper()
	place := t.TempDir()
	if err := bindOnItself(place); err != nil {
		t.Fatal(err)
	}
	w := &crashWorld{t: t, bin: installed(t), state: filepath.Join(place, "state")}
	w.env = append(os.Environ(), "NETSANDBOX_STATE_DIR="+w.state)
	return &survivors{crashWorld: w, place: place, marked: map[string]int{}}
}
