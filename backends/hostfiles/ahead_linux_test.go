package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// What was read ahead holds until somebody touches the file, however well they
// cover it, and is not even kept for a file that is as young as a tick.
func TestReadAheadIsOfWhatIsThere(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	f := newFixture(t)
	var steps []backends.Step
	for i := range 4 * few {
		p := fmt.Sprintf("/d/%d", i)
		f.put(p, "file:then")
		steps = append(steps, backends.Step{
			Change: change.Change{Path: change.Path(p), New: &change.Entry{Type: change.Regular}},
			Place:  backends.Place{Staged: &change.Identity{}},
		})
	}
	for last := time.Now(); time.Since(last) < 2*tick; {
		runtime.Gosched()
	}
	f.put("/d/5", "file:late")
	tr, err := openTree(f.dir)
	f.ok(err)
	defer tr.close()
	u := &undoer{tree: tr, steps: steps}
	u.readAhead()
	if len(u.ahead) < len(steps)-1 {
		t.Errorf("%d of %d files are known ahead", len(u.ahead), len(steps))
	}
	// On a busy machine it may have come of age meanwhile.
	if c, ok := u.ahead["/d/5"]; ok && time.Now().UnixNano()-c.node.ctime < int64(tick) {
		t.Error("a file younger than a tick is known ahead")
	}
	var before unix.Stat_t
	f.ok(unix.Lstat(f.path("/d/7"), &before))
	f.put("/d/7", "file:THEN")
	f.ok(unix.UtimesNanoAt(unix.AT_FDCWD, f.path("/d/7"), []unix.Timespec{before.Atim, before.Mtim}, 0))
	f.ok(os.Remove(f.path("/d/8")), os.WriteFile(f.path("/d/8"), []byte("anew"), 0o640))
	for i, want := range map[int]string{3: "then", 5: "late", 7: "THEN", 8: "anew"} {
		p := steps[i].Change.Path
		dir, base, err := tr.parent(p)
		f.ok(err)
		at, err := stat(dir, base)
		f.ok(err)
		_, sum, err := u.content(dir, base, at, p)
		f.ok(err)
		if h := sha256.Sum256([]byte(want)); sum != hex.EncodeToString(h[:]) {
			t.Errorf("%s has the hash %s, want that of %q", p, sum, want)
		}
	}
}
