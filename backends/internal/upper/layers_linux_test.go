package upper

import (
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nestedLab has a tmpfs below the host's directory, with a layer of its own.
func nestedLab(t *testing.T, script string) *lab {
	t.Helper()
	l := newLab(t, "mkdir -p srv/data; echo a > srv/f")
	l.unmount()
	must(t, unix.Mount("tmpfs", l.host+"/srv/data", "tmpfs", 0, "size=1m,mode=755"))
	l.onHost(script)
	l.mount()
	l.addLayer("data", l.host+"/srv/data")
	return l
}

func (l *lab) unmountNested() {
	l.t.Helper()
	must(l.t, unix.Unmount(l.merged+"/srv/data", 0))
	l.unmount()
}

func TestNestedMountHasItsOwnLayer(t *testing.T) {
	l := nestedLab(t, "echo b > srv/data/g; mkdir srv/data/d; echo c > srv/data/d/h")
	l.inView("echo v >> srv/data/g; rm -r srv/data/d; echo w >> srv/f; echo n > srv/data/n")
	l.want(`deleted srv/data/d
		deleted srv/data/d/h
		modified srv/data/g
		added srv/data/n
		modified srv/f
	`)
	f, err := Open(l.env, l.paths("srv/data/g")[0])
	must(t, err)
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "b\nv\n" {
		t.Errorf("content %q, %v", b, err)
	}
	l.unmountNested()
	must(t, Remove(l.env, l.paths("srv/data/g")))
	l.mount()
	overlay(t, l.host+"/srv/data", l.env+"/layers/data", l.merged+"/srv/data")
	l.want("deleted srv/data/d\ndeleted srv/data/d/h\nadded srv/data/n\nmodified srv/f\n")
	l.unmountNested()
	must(t, Remove(l.env, l.paths("srv")))
	l.mount()
	l.want("")
}

// A reset below a directory that is bound on itself finds what is deleted there.
func TestRemoveBelowASelfBind(t *testing.T) {
	l := nestedLab(t, "mkdir -p srv/data/d/e; echo b > srv/data/d/e/g; echo c > srv/data/d/e/h")
	bound := l.host + "/srv/data/d"
	must(t, unix.Mount(bound, bound, "", unix.MS_BIND, ""))
	l.inView("rm -r srv/data/d/e")
	l.want("deleted srv/data/d/e\ndeleted srv/data/d/e/g\ndeleted srv/data/d/e/h\n")
	l.unmountNested()
	must(t, Remove(l.env, l.paths("srv/data/d/e/g")))
	l.mount()
	overlay(t, l.host+"/srv/data", l.env+"/layers/data", l.merged+"/srv/data")
	l.want("deleted srv/data/d/e/h\n")
	l.unmountNested()
	must(t, Remove(l.env, l.paths("srv/data/d/e/h")))
	if entries, err := os.ReadDir(l.env + "/layers/data/upper"); err != nil || len(entries) > 0 {
		t.Errorf("the upper still holds %v, %v", entries, err)
	}
}

func TestMountPointThatVanishedBlocks(t *testing.T) {
	l := nestedLab(t, "echo b > srv/data/g")
	l.inView("echo v >> srv/data/g; echo w >> srv/f")
	l.record()
	l.unmountNested()
	must(t, unix.Unmount(l.host+"/srv/data", 0))
	l.want("modified srv/f\nblocked mount-changed srv/data\n")
	// What was known of the layer is still known when the mount is back.
	must(t, unix.Mount("tmpfs", l.host+"/srv/data", "tmpfs", 0, "size=1m,mode=755"))
	l.onHost("echo other > srv/data/g")
	l.want("modified srv/data/g\nmodified srv/f\nblocked conflict srv/data/g\n")
}

// A FIFO anywhere must not make anybody wait for its other end.
func TestNothingWaitsForAFIFO(t *testing.T) {
	l := newLab(t, "mkdir d; mkfifo d/p; echo a > f")
	l.inView("rm f; mkfifo f; rm -r d; mkfifo d; mkfifo g")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = Diff(l.env, DiffOptions{Base: l.base, TView: l.tview})
		_, _ = Open(l.env, l.paths("f")[0])
		_ = Record(l.env, Window{TView: l.tview})
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatal("still waiting after 5 s")
	}
}

// A file that is written all the time gets a name, not a wrong hash.
func TestBusyFileBlocksOrSettles(t *testing.T) {
	l := newLab(t, "true")
	f, err := os.Create(l.merged + "/f")
	must(t, err)
	defer f.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = f.WriteAt([]byte(time.Now().String()), 0)
			}
		}
	}()
	got := l.text(l.diff())
	close(stop)
	<-stopped
	if got != "added f\n" && got != "blocked unstable f\n" {
		t.Errorf("difference %q", got)
	}
	l.want("added f\n")
}
