package txn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/fake"
)

var errFault = errors.New("injected fault")

// crash is what the fake and the file panic with when the machine "stops".
type crash struct{}

// anything is a [backends.Wanted] that has every content: the fake stores none.
type anything struct{}

func (anything) Open(string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// machine is a fake host with one transaction on it, which stops or fails after
// a number of operations, records included.
type machine struct {
	host  *fake.Host
	dir   string
	left  int  // operations until the fault; negative for none
	stops bool // the fault is a crash, not an error
	hit   bool
}

func (m *machine) op(string) error {
	if m.left--; m.left != -1 {
		return nil
	}
	m.hit = true
	if m.stops {
		panic(crash{})
	}
	return errFault
}

// run calls f and reports whether the machine stopped in it.
func (m *machine) run(f func() error) (err error, stopped bool) {
	m.host.Fault = m.op
	TestOnlyStep = func(point string) {
		// The file itself cannot be told to fail. And in this process nobody would
		// give up the lock of a Create that "died"; TestKilledAtEveryStep does it.
		if m.stops && !strings.HasSuffix(point, "record header") {
			m.op(point)
		}
	}
	defer func() {
		m.host.Fault, TestOnlyStep = nil, nil
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			stopped = true
		}
	}()
	return f(), false
}

// scene is a random host, plan and course of events.
type scene struct {
	host   *fake.Host
	cs     []change.Change
	before string
	after  string
}

func drawScene(t *rapid.T) scene {
	host, want := &fake.Host{}, &fake.Host{}
	var cs []change.Change
	n := rapid.IntRange(1, 6).Draw(t, "paths")
	for i := range n {
		p := change.Path(fmt.Sprintf("/etc/%c", 'a'+i))
		had := rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "had")
		wants := rapid.SampledFrom([]string{"", "three", "four"}).Draw(t, "wants")
		c := change.Change{Kind: change.KindFile, Path: p}
		if had != "" {
			host.Put(p, had)
			c.Old = fake.Entry(had)
		}
		if wants != "" {
			want.Put(p, wants)
			c.New = fake.Entry(wants)
		}
		if had != "" || wants != "" {
			cs = append(cs, c)
		}
	}
	return scene{host, cs, host.String(), want.String()}
}

// trial runs the whole life of a transaction that wants to commit or to undo.
func (m *machine) trial(sc scene, commit bool) error {
	ctx := context.Background()
	x, err := Create(m.dir, Header{BootID: "1"})
	if err != nil {
		return err
	}
	defer x.Close() // as the process's death does
	undo := func(err error) error {
		_, again := x.Undo(ctx, m.host, Applier, fmt.Sprint(err))
		return errors.Join(err, again)
	}
	if err := x.Prepare(ctx, m.host, sc.cs); err != nil {
		return undo(err)
	}
	if err := x.Stage(ctx, m.host, anything{}); err != nil {
		return undo(err)
	}
	if err := x.Swap(ctx, m.host); err != nil {
		return undo(err)
	}
	if !commit {
		return undo(nil)
	}
	return errors.Join(x.Commit(Applier, ""), x.Clean(ctx, m.host))
}

// recover runs recovery over everything there is.
func (m *machine) recover() (res Result, err error) {
	dirs, err := List(m.dir)
	for _, d := range dirs {
		if res, err = Recover(context.Background(), d, m.host, "2"); err != nil {
			return res, err
		}
	}
	return res, err
}

// Whatever fails or stops wherever, also during recovery: in the end the host is
// as before or as wanted, as the file says, and recovering again changes nothing.
func TestAnyFaultEndsBeforeOrAfter(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		sc := drawScene(t)
		m := &machine{host: sc.host, dir: fmt.Sprintf("%s/%d", dir, runs)}
		mkdir(t, m.dir)
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			m.left = rapid.IntRange(0, 60).Draw(t, "operations until the fault")
			m.stops = rapid.Bool().Draw(t, "a crash")
			commit := rapid.Bool().Draw(t, "commit")
			m.run(func() error {
				if round == 0 {
					return m.trial(sc, commit)
				}
				_, err := m.recover()
				return err
			})
		}
		m.left = -1
		res, err := m.recover()
		if err != nil || len(res.Leftovers) > 0 {
			t.Fatalf("recover: %+v, %v", res, err)
		}
		want := sc.before
		if res.Status == Committed {
			want = sc.after
		}
		if got := m.host.String(); got != want {
			t.Fatalf("%s, host:\n%swant:\n%s", res.Status, got, want)
		}
		if res.Status != Committed && m.host.Hidden() != "" {
			t.Fatalf("left hidden:\n%s", m.host.Hidden())
		}
		if again, err := m.recover(); err != nil || again.Did != Nothing || m.host.String() != want {
			t.Fatalf("again: %+v, %v", again, err)
		}
	})
}

// The same with somebody at work on the host during the trial: what they did
// stays, everything else is as before, and undoing twice is undoing once.
func TestForeignWorkSurvivesUndo(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		sc := drawScene(t)
		if len(sc.cs) == 0 {
			return
		}
		m := &machine{host: sc.host, dir: fmt.Sprintf("%s/%d", dir, runs), left: -1}
		mkdir(t, m.dir)
		ctx := context.Background()
		x, err := Create(m.dir, Header{})
		ok(t, err)
		defer x.Close()
		ok(t, x.Prepare(ctx, m.host, sc.cs))
		ok(t, x.Stage(ctx, m.host, anything{}))
		ok(t, x.Swap(ctx, m.host))

		p := rapid.SampledFrom(sc.cs).Draw(t, "edited").Path
		switch rapid.SampledFrom([]string{"write", "replace", "remove"}).Draw(t, "how") {
		case "write":
			if strings.Contains(m.host.String(), string(p)+" ") {
				m.host.Write(p, "edited")
			} else {
				m.host.Put(p, "edited")
			}
		case "replace":
			m.host.Put(p, "edited")
		case "remove":
			m.host.Remove(p)
		}
		theirs := line(m.host.String(), p)
		left, err := x.Undo(ctx, m.host, Applier, "")
		ok(t, err)
		once := m.host.String()
		for _, c := range sc.cs {
			want := line(sc.before, c.Path)
			if c.Path == p {
				if want == theirs || theirs == "" && c.New == nil {
					continue // they did what undo does, or nothing
				}
				want = theirs
				if len(left) != 1 {
					t.Fatalf("%s was %q, leftovers %+v", p, theirs, left)
				}
			}
			if got := line(once, c.Path); got != want {
				t.Fatalf("%s is %q, want %q", c.Path, got, want)
			}
		}
		again, err := x.Undo(ctx, m.host, Recoverer, "")
		ok(t, err)
		if m.host.String() != once || len(again) != len(left) {
			t.Fatalf("twice:\n%s%+v\nonce:\n%s%+v", m.host, again, once, left)
		}
	})
}

// line returns the line of one path in a rendered host.
func line(host string, p change.Path) string {
	for l := range strings.Lines(host) {
		if strings.HasPrefix(l, string(p)+" ") {
			return l
		}
	}
	return ""
}

// Every single operation fails once.
func TestEveryOperationFailsOnce(t *testing.T) {
	for n := 0; ; n++ {
		sc := scene{host: &fake.Host{}}
		for _, p := range []change.Path{"/a", "/b"} {
			sc.host.Put(p, "old")
			sc.cs = append(sc.cs, change.Change{Kind: change.KindFile, Path: p, Old: fake.Entry("old"), New: fake.Entry("new")})
		}
		sc.cs[1].New = nil
		before := sc.host.String()
		m := &machine{host: sc.host, dir: t.TempDir(), left: n}
		err, _ := m.run(func() error { return m.trial(sc, false) })
		if !m.hit {
			t.Logf("%d operations failed in turn", n)
			break
		}
		if !errors.Is(err, errFault) {
			t.Errorf("operation %d: %v", n, err)
		}
		m.left = -1
		if res, err := m.recover(); err != nil || res.Status != Undone || m.host.String() != before {
			t.Errorf("operation %d: %+v, %v, host:\n%s", n, res, err, m.host)
		}
	}
}

func mkdir(t *rapid.T, dir string) { ok(t, os.Mkdir(dir, 0o700)) }

func ok(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
