package upper

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// A directory that is swapped takes what is in it along, with old change times.
// Each row edits p/d/f, replaces p/d/r by a new file, deletes p/d/x and adds
// p/d/n in the view, then swaps on the host; whether anybody looked in between
// makes no difference.
func TestAncestorSwap(t *testing.T) {
	const tree = "mkdir -p p/d p/e q/d; for i in p/d p/e q/d; do echo $i > $i/f; echo $i > $i/r; echo $i > $i/x; done"
	const blocked = "blocked origin-uncertain p/d/f\nblocked origin-uncertain p/d/n\nblocked origin-uncertain p/d/r\nblocked origin-uncertain p/d/x\n"
	for _, tt := range []struct{ name, swap, want string }{
		{"the directory", "mv p/d o; mv p/e p/d", blocked},
		{"the directory above it", "mv p o; mv q p", blocked},
		{"with one that is equal", "cp -a p/d p/c; mv p/d o; mv p/c p/d", blocked},
		{"away and back again", "mv p/d o; mv p/e p/d; mv p/d p/e; mv o p/d", ""},
		{"another directory beside it", "mv p/e o; mv o p/e", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, recorded := range []bool{true, false} {
				if !recorded && tt.want == "" {
					continue // unseen, such a row is one of the next test
				}
				l := newLab(t, tree)
				l.inView("cd p/d; echo v >> f; echo v > t; mv t r; rm x; echo v > n")
				if recorded {
					l.record()
				}
				l.onHost(tt.swap)
				l.want("modified p/d/f\nadded p/d/n\nmodified p/d/r\ndeleted p/d/x\n" + tt.want)
			}
		})
	}
}

// The view is mounted while another directory stands in the place, and what it
// reads there it writes; then the right one comes back, with its old times. Only
// a copy carries a mark of what it was made from.
func TestSwappedBackAfterTheViewWasMounted(t *testing.T) {
	l := newLab(t, "mkdir -p p/d p/e; for i in p/d p/e; do echo $i > $i/f; echo $i > $i/r; echo $i > $i/x; done")
	l.unmount()
	l.onHost("mv p/d p/o; mv p/e p/d")
	l.mount()
	l.inView("cd p/d; echo v >> f; cat r > t; mv t r; rm x; cat f > n")
	l.onHost("mv p/d p/e; mv p/o p/d")
	l.want("modified p/d/f\nadded p/d/n\nmodified p/d/r\ndeleted p/d/x\n" +
		"blocked origin-uncertain p/d/f\nblocked origin-uncertain p/d/n\nblocked origin-uncertain p/d/r\nblocked origin-uncertain p/d/x\n")
}

// The same, with a mark on the directory from before that agrees again.
func TestSwappedAwayAndBackAroundARebuild(t *testing.T) {
	l := newLab(t, "mkdir -p p/d p/e; for i in p/d p/e; do echo $i > $i/f; echo $i > $i/r; done")
	l.inView("echo v > p/d/first")
	l.record()
	l.unmount()
	l.onHost("mv p/d p/o; mv p/e p/d")
	l.mount()
	l.inView("cd p/d; cat r > t; mv t r")
	l.onHost("mv p/d p/e; mv p/o p/d")
	l.want("added p/d/first\nmodified p/d/r\nblocked origin-uncertain p/d/r\n")
}

// The same one level up: nothing in the directory itself has changed, and what
// the view replaced there the host does not have.
func TestSwappedAwayAndBackAboveARebuild(t *testing.T) {
	l := newLab(t, "mkdir -p p/d q/d; echo q > q/d/r; echo q > q/d/x; echo p > p/d/x")
	l.inView("echo v > p/d/first")
	l.record()
	l.unmount()
	l.onHost("mv p o; mv q p")
	l.mount()
	l.inView("cd p/d; cat r > t; echo v >> t; mv t r; rm x")
	l.onHost("mv p q; mv o p")
	l.want("added p/d/first\nadded p/d/r\ndeleted p/d/x\nblocked origin-uncertain p/d/r\nblocked origin-uncertain p/d/x\n")
}

// What the host adds to a directory while a view lives is no reason to doubt
// what the view replaced in it, as long as the directory itself cannot have moved.
func TestBusyDirectoryKeepsItsFilesCertain(t *testing.T) {
	l := newLab(t, "mkdir -p p/d; echo a > p/d/r; echo b > p/d/x")
	l.inView("cd p/d; echo v > t; mv t r; rm x")
	l.onHost("echo h > p/d/more; rm p/d/more; echo h > p/d/another")
	l.want("modified p/d/r\ndeleted p/d/x\n")
}

// When the directory above changed as well, only a copy can be told from what
// another directory held in its place.
func TestBusyDirectoriesLeaveTheCopiesCertain(t *testing.T) {
	l := newLab(t, "mkdir -p p/d; for f in f r x; do echo a > p/d/$f; done")
	l.inView("cd p/d; echo v >> f; echo v > t; mv t r; rm x; chmod 700 .")
	l.onHost("echo h > p/d/more; echo h > p/more")
	l.want("modified p/d mode 0700 owner 0:0\nmodified p/d/f\nmodified p/d/r\ndeleted p/d/x\n" +
		"blocked origin-uncertain p/d\nblocked origin-uncertain p/d/r\nblocked origin-uncertain p/d/x\n")
}

// Where a lower has no handles, as an overlay has none, the recorded object
// stands for them.
func TestAncestorSwapWithoutHandles(t *testing.T) {
	nstest.NewMount(t, nstest.Overlay)
	dir := t.TempDir()
	for _, d := range []string{"/low", "/upper", "/work", "/host"} {
		must(t, os.Mkdir(dir+d, 0o755))
	}
	overlay(t, dir+"/low", dir, dir+"/host")
	t.Cleanup(func() { must(t, unix.Unmount(dir+"/host", unix.MNT_DETACH)) })
	l := labAt(t, dir+"/host", "mkdir d e; for i in d e; do echo $i > $i/f; echo $i > $i/g; done")
	l.inView("echo v >> d/f")
	l.record()
	l.onHost("touch d/more")
	l.want("modified d/f\n")
	l.unmount()
	l.mount()
	l.inView("echo v >> d/g")
	l.onHost("touch d/another") // and the directory is in doubt when it is recorded
	l.record()
	l.want("modified d/f\nmodified d/g\n")
	l.onHost("mv d o; mv e d")
	l.want("modified d/f\nmodified d/g\nblocked origin-uncertain d/f\nblocked origin-uncertain d/g\n")
	l.onHost("mv d e; mv o d")
	l.want("modified d/f\nmodified d/g\n")
}
