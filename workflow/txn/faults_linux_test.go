package txn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/hostfiles"
	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
)

// A fault is what happens to a filesystem in the middle of a transaction.
type fault struct {
	name   string
	strike func(t *testing.T, fs *faultfs.FS) (mend func())
	kinds  string // of filesystem, empty for all
	lasts  bool   // beyond a reboot: it is mended after it
	cold   bool   // nothing of the host is in the kernel's memory
}

// reboot mends what a filesystem does not get over by itself.
func reboot(fs *faultfs.FS) func() { return fs.Remount }

var faults = []fault{
	{name: "writes fail", strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.Fail(faultfs.Write); return reboot(fs) }},
	{name: "flushes fail", strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.Fail(faultfs.Flush); return reboot(fs) }},
	// Reported once and never again; the memory of the kernel goes on as if nothing was.
	{name: "one write fails", strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.FailOnce(faultfs.Write, 0, 1); return reboot(fs) }},
	{name: "third write fails", strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.FailOnce(faultfs.Write, 2, 1); return reboot(fs) }},
	{name: "one flush fails", strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.FailOnce(faultfs.Flush, 0, 1); return reboot(fs) }},
	{name: "power cut", strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.Cut(); return reboot(fs) }},
	{name: "reads fail", cold: true, strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.Fail(faultfs.Read); return reboot(fs) }},
	{name: "disk full", lasts: true, strike: func(t *testing.T, fs *faultfs.FS) func() { return faultfs.Fill(t, fs.Dir) }},
	{name: "no inodes", lasts: true, kinds: "ext4", strike: func(t *testing.T, fs *faultfs.FS) func() { return faultfs.FillInodes(t, fs.Dir) }},
	{name: "over quota", lasts: true, kinds: "btrfs", strike: func(_ *testing.T, fs *faultfs.FS) func() { return fs.OverQuota() }},
	{name: "read-only", kinds: "ext4", strike: func(_ *testing.T, fs *faultfs.FS) func() { fs.ReadOnly(); return reboot(fs) }},
}

// claim is what somebody was told about a transaction. It must still be true
// after the power was cut right then.
type claim struct {
	by     string
	status Status
}

// life is one transaction on two filesystems that fail on demand.
type life struct {
	w      *world
	want   [][2]string
	claims []claim
	log    []string
}

// apply does what an applier does: whatever fails, it undoes; and whatever it
// could not finish, somebody else tries once more while the fault goes on.
func (l *life) apply(commit bool) {
	ctx, host := context.Background(), l.w.host()
	x, err := l.trial(ctx, host)
	if x == nil {
		l.note("create", err)
		return
	}
	defer x.Close()
	if err == nil && commit {
		if err = x.Commit(Applier, ""); err == nil {
			l.claim("applier", Committed)
			l.note("clean", x.Clean(ctx, host))
			return
		}
	}
	l.note("trial", err)
	left, err := x.Undo(ctx, host, Applier, fmt.Sprint(err))
	l.note("undo", err)
	if err == nil && len(left) == 0 {
		l.claim("applier", x.Status())
	}
}

func (l *life) trial(ctx context.Context, host *hostfiles.Host) (*Txn, error) {
	cs := l.w.plan(l.want)
	x, err := Create(l.w.dir, Header{BootID: "boot-1"})
	if err != nil {
		return nil, err
	}
	for _, phase := range []func() error{
		func() error { return x.Prepare(ctx, host, cs) },
		func() error { return x.Arm(Keeper{PID: 1}) },
		func() error { return x.Stage(ctx, host, l.w.wanted) },
		func() error { return x.Swap(ctx, host) },
		func() error {
			left, err := x.Verify(ctx, host)
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("not as planned: %+v", left)
			}
			return err
		},
	} {
		if err := phase(); err != nil {
			return x, err
		}
	}
	return x, nil
}

// rollback takes the committed transaction back.
func (l *life) rollback() {
	ctx, host := context.Background(), l.w.host()
	dirs, err := List(l.w.dir)
	if err != nil || len(dirs) != 1 {
		l.w.t.Fatalf("transactions %v: %v", dirs, err)
	}
	x, err := Open(dirs[0])
	if err != nil {
		l.note("open", err)
		return
	}
	defer x.Close()
	left, err := x.Rollback(ctx, host, Operator, "")
	l.note("rollback", err)
	if err == nil && len(left) == 0 {
		l.claim("operator", x.Status())
	}
}

// recover is keeper and recover; it returns the last status.
func (l *life) recover(by string) (Result, error) {
	res := Result{Status: Undone}
	dirs, err := List(l.w.dir)
	for _, d := range dirs {
		if res, err = Recover(context.Background(), d, l.w.host(), "boot-1"); err != nil {
			break
		}
		if len(res.Leftovers) == 0 {
			l.claim(by, res.Status)
		}
	}
	l.note(by, err)
	return res, err
}

func (l *life) claim(by string, s Status) { l.claims = append(l.claims, claim{by, s}) }

func (l *life) note(what string, err error) {
	l.log = append(l.log, fmt.Sprintf("%s: %v", what, err))
}

// deviceTest is one matrix: a course of events, struck at each of its points.
type deviceTest struct {
	t             *testing.T
	host, state   *faultfs.FS
	before, after string
	run           int
	struck        int
}

// world makes a fresh one, on the two filesystems.
func (d *deviceTest) world(c course) *world {
	d.run++
	at := func(fs *faultfs.FS) string { return filepath.Join(fs.Dir, fmt.Sprint(d.run)) }
	w := newWorldIn(d.t, at(d.host), at(d.state))
	for i := range c.more {
		w.put(fmt.Sprintf("etc/more/%d", i), "old\n")
	}
	w.age()
	d.host.Sync()
	d.state.Sync()
	return w
}

// clear makes room for the next run.
func (d *deviceTest) clear(w *world) {
	d.t.Helper()
	w.ok(errors.Join(os.RemoveAll(w.root), os.RemoveAll(w.dir)))
}

// course is what happens in a life; prepare is what happened before the fault,
// from is the first point that no other course has.
type course struct {
	name          string
	prepare, live func(l *life)
	from          string
	only          string // kind of point, empty for all
	more          int    // files beside those of every world
}

var courses = []course{
	{name: "trial and undo", live: func(l *life) { l.apply(false) }},
	{name: "trial and commit", live: func(l *life) { l.apply(true) }, from: "record verdict"},
	{name: "rollback", prepare: func(l *life) { l.apply(true) }, live: (*life).rollback},
	// Enough for one sync of the whole filesystem instead of one of each file.
	{name: "trial and undo of many", live: func(l *life) { l.apply(false) }, more: 32, only: "sync"},
}

// want is the plan of a course.
func (c course) want() [][2]string {
	all := slices.Clone(wantedFiles)
	for i := range c.more {
		all = append(all, [2]string{fmt.Sprintf("/etc/more/%d", i), "new\n"})
	}
	return all
}

// points runs a course without faults and returns where to strike: at each kind
// of step the first, one in the middle and the last, or with FAULTS_ALL in the
// environment, which takes some minutes, at every single one.
func (d *deviceTest) points(c course) []int {
	var names []string
	w := d.world(c)
	d.live(c, w, func(_ int, name string) { names = append(names, name) })
	d.clear(w)
	byKind := map[string][]int{}
	from := max(slices.Index(names, c.from), 0)
	for n, name := range names[from:] {
		if !strings.HasPrefix(name, c.only) {
			continue
		}
		kind, _, _ := strings.Cut(name, "/")
		if os.Getenv("FAULTS_ALL") != "" {
			kind = name + fmt.Sprint(n)
		}
		byKind[kind] = append(byKind[kind], from+n)
	}
	var points []int
	for _, at := range byKind {
		points = append(points, at[0], at[len(at)/2], at[len(at)-1])
	}
	slices.Sort(points)
	return slices.Compact(points)
}

// live runs a course and calls at right before each durable step.
func (d *deviceTest) live(c course, w *world, at func(n int, name string)) *life {
	l := &life{w: w, want: c.want()}
	if c.prepare != nil {
		c.prepare(l)
		l.claims, l.log = nil, nil
	}
	var mu sync.Mutex
	n := 0
	step := func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if name, ok := strings.CutPrefix(point, "before "); ok {
			at(n, name)
			l.log = append(l.log, fmt.Sprintf("%d %s", n, name))
			n++
		}
	}
	TestOnlyStep, hostfiles.TestOnlyStep = step, step
	defer func() { TestOnlyStep, hostfiles.TestOnlyStep = nil, nil }()
	c.live(l)
	return l
}

// strike lives through one course with one fault at one point, and through what
// follows: somebody else's try, a power cut, a repair, a recovery.
func (d *deviceTest) strike(c course, f fault, victim *faultfs.FS, point int) {
	d.struck++
	w := d.world(c)
	defer d.clear(w)
	if f.cold {
		d.host.Remount()
	}
	var mend func()
	l := d.live(c, w, func(n int, _ string) {
		if n == point {
			mend = f.strike(d.t, victim)
		}
	})
	if mend == nil {
		d.t.Fatalf("%s: point %d was not reached: %v", c.name, point, l.log)
	}
	_, _ = l.recover("keeper") // it may fail, not lie
	var wrong []string
	if victim == d.state {
		wrong = append(wrong, d.between(c, w)...)
	}
	// The power goes on both sides: whatever was claimed must be on the disks.
	d.host.Cut()
	d.state.Cut()
	d.host.Remount()
	d.state.Remount()
	if f.lasts {
		mend()
	}
	res, err := l.recover("recover")
	if err != nil || len(res.Leftovers) > 0 {
		wrong = append(wrong, fmt.Sprintf("recover when all was well again: %+v, %v", res, err))
	} else {
		wrong = append(wrong, d.judge(w, l, res.Status)...)
	}
	if len(wrong) > 0 {
		side := map[*faultfs.FS]string{d.host: "host", d.state: "state"}[victim]
		d.t.Errorf("%s: %s on the side of the %s at point %d:\n%s\n\t%s", c.name, f.name, side, point,
			strings.Join(wrong, "\n"), strings.Join(l.log, "\n\t"))
	}
}

// between demands that the host is before or after also while the disk with the
// transaction's file fails: nobody waits for that disk with a host cut off.
func (d *deviceTest) between(c course, w *world) []string {
	got := wanted(w.manifest())
	if got == d.after && !strings.HasPrefix(c.name, "trial and undo") {
		return nil
	}
	if diff := cmp.Diff(wanted(d.before), got); diff != "" {
		return []string{"while the fault goes on, host (-before +now):\n" + diff}
	}
	return nil
}

// judge compares what is with what was said.
func (d *deviceTest) judge(w *world, l *life, s Status) (wrong []string) {
	for _, c := range l.claims {
		if c.status != s {
			wrong = append(wrong, fmt.Sprintf("the %s said %s, it is %s", c.by, c.status, s))
		}
	}
	want, got := d.before, w.manifest()
	if s == Committed {
		want, got = d.after, wanted(got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		wrong = append(wrong, fmt.Sprintf("%s, host (-want +now):\n%s", s, diff))
	}
	return wrong
}

// outcomes finds out what a course starts from and what it is to lead to.
func (d *deviceTest) outcomes(c course) {
	w := d.world(c)
	d.before = w.manifest()
	(&life{w: w, want: c.want()}).apply(true)
	d.after = wanted(w.manifest())
	d.clear(w)
}

// Whatever a disk does in the middle of a transaction, on the host's side or on
// that of the transaction's file: it ends before or after, as the file says, and
// nobody was told otherwise. Faults and points meet on the three filesystems and
// on the two sides by turns; with FAULTS_ALL in the environment on all of them.
func TestDeviceFaultAtEveryStep(t *testing.T) {
	struck := 0
	for turn, k := range []faultfs.Kind{faultfs.Ext4, faultfs.XFS, faultfs.Btrfs} {
		t.Run(k.Name, func(t *testing.T) {
			nstest.NewMount(t, nstest.Tool(k.Mkfs[0]))
			d := &deviceTest{t: t, host: faultfs.New(t, k), state: faultfs.New(t, k)}
			for _, c := range courses {
				d.outcomes(c)
				d.course(c, turn)
			}
			struck += d.struck
		})
	}
	count(t, fmt.Sprintf("disk faults in a transaction: %d combinations of step, fault, disk and filesystem", struck))
}

func (d *deviceTest) course(c course, turn int) {
	points, all := d.points(c), os.Getenv("FAULTS_ALL") != ""
	for i, f := range faults {
		if f.kinds != "" && f.kinds != d.host.Kind.Name {
			continue
		}
		for n, p := range points {
			if !all && (i+n)%3 != turn {
				continue
			}
			if all || (i+n)/3%2 == 0 {
				d.strike(c, f, d.host, p)
			}
			if all || (i+n)/3%2 == 1 {
				d.strike(c, f, d.state, p)
			}
		}
	}
}

// count says a figure, also where go test shows nothing of a test that passes:
// CRASH_SUMMARY names a file for the one who runs the suite.
func count(t *testing.T, line string) {
	t.Helper()
	t.Log(line)
	name := os.Getenv("CRASH_SUMMARY")
	if name == "" {
		return
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(f, line)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
