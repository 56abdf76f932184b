package upper

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// absent stands for the content of a file that is not there.
const absent = "absent"

// knower keeps beside the layers what they cannot: from which content each change
// of the view was really derived.
type knower struct {
	*lab
	t     *rapid.T
	texec int64
	token int
	base  map[string]string // by path: what the view had there before it changed it
	mind  map[string]string // what a process that lives in the view has read
}

func (k *knower) next(who string) string {
	k.token++
	return fmt.Sprintf("%s%d\n", who, k.token)
}

func (k *knower) path(what string) string {
	dir := rapid.SampledFrom([]string{"p/d", "p/e", "q/d", "q/e"}).Draw(k.t, what+" in")
	return filepath.Join(dir, rapid.SampledFrom([]string{"f", "g"}).Draw(k.t, what))
}

// content reads a file; not ok when that fails otherwise than by its absence, as
// it may in a view whose directories the host has moved.
func content(name string) (string, bool) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, true
	}
	return string(b), err == nil
}

// host is one edit of the host.
func (k *knower) host() {
	name := filepath.Join(k.lab.host, k.path("host"))
	switch rapid.IntRange(0, 9).Draw(k.t, "edit") {
	case 0, 1:
		must(k.lab.t, os.WriteFile(name, []byte(k.next("h")), 0o644)) // in place, or new
	case 2, 3:
		must(k.lab.t, os.WriteFile(name+".n", []byte(k.next("h")), 0o644))
		must(k.lab.t, os.Rename(name+".n", name))
	case 4:
		must(k.lab.t, ignore(os.Remove(name), fs.ErrNotExist))
	case 5:
		must(k.lab.t, ignore(os.Link(name, name+".l"), fs.ErrNotExist, fs.ErrExist))
	case 6:
		must(k.lab.t, ignore(os.Rename(name, name+".m"), fs.ErrNotExist))
	case 7:
		k.swap("p/d", "p/e")
	case 8:
		k.swap("p", "q")
	case 9:
		k.swap("p/d", "q/d")
	}
}

func (k *knower) swap(a, b string) {
	must(k.lab.t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(k.lab.host, a), unix.AT_FDCWD, filepath.Join(k.lab.host, b), unix.RENAME_EXCHANGE))
}

func ignore(err error, these ...error) error {
	for _, e := range these {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// view is one thing that a process in the view does to a file, having read it
// now, or before.
func (k *knower) view() {
	rel := k.path("view")
	name := filepath.Join(k.merged, rel)
	was, ok := content(name)
	if !ok {
		return
	}
	var err error
	switch rapid.IntRange(0, 6).Draw(k.t, "does") {
	case 0, 1:
		err = appendTo(name, k.next("v"))
	case 2, 3:
		if err = os.WriteFile(name+".t", []byte(was+k.next("v")), 0o644); err == nil {
			err = os.Rename(name+".t", name)
		}
	case 4:
		err = os.Remove(name)
	case 5:
		k.mind[rel] = was
		return
	case 6:
		if was, ok = k.mind[rel]; !ok {
			return
		}
		err = os.WriteFile(name, []byte(was+k.next("v")), 0o644)
	}
	if _, err := os.Lstat(k.env + "/layers/root/upper/" + rel); errors.Is(err, fs.ErrNotExist) {
		delete(k.base, rel)
		return
	}
	if _, known := k.base[rel]; !known && err == nil {
		k.base[rel] = was
	}
}

func appendTo(name, s string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(s)
	return errors.Join(err, f.Close())
}

func (k *knower) window() Window { return Window{TView: k.tview, TExec: k.texec} }

// step is one of all.
func (k *knower) step() {
	switch n := rapid.IntRange(0, 19).Draw(k.t, "step"); {
	case n < 7:
		k.host()
	case n < 15:
		k.view()
	case n == 15:
		must(k.lab.t, Record(k.env, k.window()))
	case n == 16 || n == 17: // what lived has ended, and a command begins
		clear(k.mind)
		must(k.lab.t, Record(k.env, k.window()))
		k.texec = k.command()
	default: // and in a view of its own
		clear(k.mind)
		must(k.lab.t, Record(k.env, k.window()))
		k.unmount()
		k.mount()
		k.texec = k.tview
	}
}

// Whatever host and view do in whatever order: a change that nothing stands
// against was derived from what the host has now.
func TestWhatIsCertainIsTrue(t *testing.T) {
	l := newLab(t, "true")
	free, stopped := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l.fresh()
		for _, d := range []string{"p/d", "p/e", "q/d", "q/e"} {
			must(l.t, os.MkdirAll(filepath.Join(l.host, d), 0o755))
			for _, f := range []string{"f", "g"} {
				must(l.t, os.WriteFile(filepath.Join(l.host, d, f), []byte(d+"/"+f+"\n"), 0o644))
			}
		}
		l.mount()
		k := &knower{lab: l, t: t, texec: l.tview, base: map[string]string{}, mind: map[string]string{}}
		for range rapid.IntRange(2, 14).Draw(t, "steps") {
			k.step()
		}
		d, err := Diff(l.env, DiffOptions{Env: "e", Base: l.base, TView: l.tview, TExec: k.texec})
		must(l.t, err)
		blocked := map[string]bool{}
		for _, b := range d.Blockers {
			blocked[b.Subject] = true
		}
		for _, c := range d.Changes {
			rel := strings.TrimPrefix(string(c.Path), l.host+"/")
			if strings.HasSuffix(rel, ".t") || c.New != nil && c.New.Type == "directory" || c.Old != nil && c.Old.Type == "directory" {
				continue
			}
			if blocked[string(c.Path)] {
				stopped++
				continue
			}
			free++
			now, _ := content(string(c.Path))
			if base, known := k.base[rel]; !known || base != now {
				t.Fatalf("%s %s was derived from %q, the host has %q, and nothing stands against it\nknown: %q", c.Op, rel, base, now, slices.Sorted(maps.Keys(k.base)))
			}
		}
	})
	t.Logf("%d changes were free, %d stopped", free, stopped)
	if free < 20 || stopped < 20 {
		t.Errorf("%d changes were free and %d stopped: too few to show anything", free, stopped)
	}
}
