package txn

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// A thousand files in forty directories, with mixed modes and owners, are applied
// and taken back; one of them was edited by the host in between.
func TestThousandFiles(t *testing.T) {
	nstest.Require(t, nstest.Root) // to give files away
	w := newWorld(t)
	var plan [][2]string
	for i := range 1000 {
		p := fmt.Sprintf("etc/many/%d/%d.conf", i/25, i)
		if i%10 == 9 {
			plan = append(plan, [2]string{"/" + p, fmt.Sprintf("added %d", i)})
			continue
		}
		w.put(p, fmt.Sprintf("old %d", i))
		full := filepath.Join(w.root, p)
		w.ok(os.Chown(full, i%3, i%5))
		w.ok(os.Chmod(full, os.FileMode(0o600+i%64)))
		plan = append(plan, [2]string{"/" + p, []string{fmt.Sprintf("new %d", i), "-", "-> elsewhere"}[i%17/8]})
	}
	w.age()
	before := w.manifest()

	x := w.trial(w.beginWith(w.plan(plan)))
	left, err := x.Verify(context.Background(), w.host())
	w.ok(err)
	if len(left) > 0 {
		t.Fatalf("%d not as wanted, the first: %+v", len(left), left[0])
	}
	edited := filepath.Join(w.root, "etc/many/4/100.conf")
	w.ok(os.WriteFile(edited, []byte("edited by the host"), 0o600))
	left, err = x.Undo(context.Background(), w.host(), Applier, "")
	w.ok(err)
	if len(left) != 1 || left[0].Subject != "/etc/many/4/100.conf" {
		t.Fatalf("leftovers %+v", left)
	}
	text, err := os.ReadFile(edited)
	w.ok(err)
	if string(text) != "edited by the host" {
		t.Fatalf("the edit became %q", text)
	}

	// Exactly as the report says: the original comes back with one command.
	argv := strings.Fields(left[0].Fix)
	w.ok(os.Rename(filepath.Join(w.root, argv[3]), filepath.Join(w.root, argv[4])))
	left, err = x.Undo(context.Background(), w.host(), Recoverer, "")
	w.ok(err)
	if len(left) > 0 || x.Status() != Undone {
		t.Fatalf("status %s, leftovers %+v", x.Status(), left)
	}
	if d := cmp.Diff(dirTime.ReplaceAllString(before, "$1"), dirTime.ReplaceAllString(w.manifest(), "$1")); d != "" {
		t.Errorf("host (-before +now):\n%s", d)
	}
}

// The same without anybody else: every byte, mode, owner and time.
func TestThousandFilesExactly(t *testing.T) {
	w := newWorld(t)
	var plan [][2]string
	for i := range 1000 {
		w.put(fmt.Sprintf("etc/many/%d/%d", i/100, i), fmt.Sprint(i))
		plan = append(plan, [2]string{fmt.Sprintf("/etc/many/%d/%d", i/100, i), fmt.Sprint("new ", i)})
	}
	w.age()
	before := w.manifest()
	x := w.trial(w.beginWith(w.plan(plan)))
	left, err := x.Undo(context.Background(), w.host(), Applier, "")
	w.ok(err)
	if d := cmp.Diff(before, w.manifest()); d != "" || len(left) > 0 {
		t.Errorf("leftovers %+v, host (-before +now):\n%s", left, d)
	}
}
