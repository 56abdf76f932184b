package linuxns

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// unmount waits for the moment in which the holder looks at what a command that
// has just ended wrote, and at what the host has there.
func (m mounted) unmount(at string) {
	m.t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := unix.Unmount(m.path(at), 0)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			m.t.Fatalf("unmount %s: %v", at, err)
		}
		runtime.Gosched()
	}
}

func (m mounted) reset(e *env, at string) {
	m.t.Helper()
	err := e.view().Reset(m.t.Context(), backends.Reset{Paths: []change.Path{change.Path(m.path(at))}, Stop: true})
	if err != nil {
		m.t.Fatalf("reset %s: %v", at, err)
	}
}

// A mount that nobody wrote to may come and go, and bars nothing.
func TestMountThatGoesUntouched(t *testing.T) {
	m := newMounted(t)
	m.loop(loopfs.Ext4, "stick", loopfs.Options{})
	write(t, m.path("other"), "host\n")
	e := newEnv(t)
	m.says(e, "read", "ls stick; echo x > other", "lost+found\n")
	m.unmount("stick")
	m.certain(e, "other")
	m.says(e, "what was below it", "ls stick; echo y > stick/f", "")
	m.certain(e, "other", "stick/f")
}

// One that was written to is missed, until it is back or its changes are dropped.
func TestMountThatVanishes(t *testing.T) {
	m := newMounted(t)
	image := loopfs.Image(t, loopfs.XFS, 0)
	m.mkdir("disk")
	loopfs.Mount(t, loopfs.XFS, image, loopfs.Options{At: m.path("disk")})
	write(t, m.path("disk/f"), "host\n")
	e := newEnv(t)
	m.says(e, "written", "echo x > disk/f", "")
	m.certain(e, "disk/f")
	m.loop(loopfs.XFS, "disk", loopfs.Options{}) // another one on top
	m.blocked(e, "mount-changed", "disk")
	m.unmount("disk")
	m.certain(e, "disk/f")
	m.unmount("disk")
	m.blocked(e, "mount-changed", "disk")
	m.says(e, "the next view has no such mount", "ls disk; echo z > disk/below; ls disk", "below\n")
	m.blocked(e, "mount-changed", "disk")

	loopfs.Mount(t, loopfs.XFS, image, loopfs.Options{At: m.path("disk")})
	m.says(e, "it is back", "cat disk/f", "x\n")
	// What was written below the mount point while it was bare is now below a mount.
	m.blocked(e, "mount", "disk/below")
	m.unmount("disk")
	m.reset(e, "disk")
	m.certain(e)
	m.says(e, "nothing of it is left", "ls disk", "")
}

// Another filesystem in a mount's place is another world: nothing of the layer is
// shown over it, and nothing is applied to it.
func TestMountThatIsReplaced(t *testing.T) {
	for _, k := range []loopfs.Kind{loopfs.Ext4, loopfs.XFS, loopfs.Btrfs, "tmpfs"} {
		t.Run(string(k), func(t *testing.T) {
			m := newMounted(t)
			mount := func() {
				if k == "tmpfs" {
					m.mount("x", "tmpfs", 0, "", "disk")
				} else {
					m.loop(k, "disk", loopfs.Options{})
				}
				write(t, m.path("disk/f"), "host\n")
			}
			mount()
			e := newEnv(t)
			m.says(e, "written", "echo x > disk/f; echo y > disk/new", "")
			m.certain(e, "disk/f", "disk/new")
			m.unmount("disk")
			mount() // with the same content, and the same device number
			m.blocked(e, "mount-changed", "disk")
			m.says(e, "not shown over another", "cat disk/f disk/new 2>/dev/null || echo refused", "refused\n")
			m.blocked(e, "mount-changed", "disk")
			m.reset(e, "disk")
			m.certain(e)
			m.says(e, "the new world", "cat disk/f; echo z > disk/f; cat disk/f", "host\nz\n")
			m.certain(e, "disk/f")
		})
	}
}

// A mount over what a view changed hides that on the host. A mount elsewhere does
// not matter, and the next view has it.
func TestMountThatAppears(t *testing.T) {
	m := newMounted(t)
	m.mkdir("a/b")
	m.mkdir("c")
	write(t, m.path("a/b/f"), "host\n")
	write(t, m.path("single"), "host\n")
	e := newEnv(t)
	m.says(e, "written", "echo x > a/b/f; mkdir a/new; echo y > a/new/f; echo z > single", "")
	m.certain(e, "a/b/f", "a/new", "a/new/f", "single")
	m.mount("x", "tmpfs", 0, "", "a/b")
	write(t, m.path("a/b/g"), "mounted\n")
	m.mount("x", "tmpfs", 0, "", "c")
	m.blocked(e, "mount", "a/b/f")
	m.says(e, "the next view shows the mount", "ls a/b; cat a/b/g a/new/f", "g\nmounted\ny\n")
	m.blocked(e, "mount", "a/b/f")
	m.over(m.path("a/b/g"), "", unix.MS_BIND, "", "single")
	m.blocked(e, "mount", "single")
	m.unmount("single")
	m.reset(e, "a/b")
	m.certain(e, "a/new", "a/new/f", "single")

	// A directory that is a mount point on the host, replaced in a view that does
	// not know it yet.
	init := e.live()
	m.mkdir("late")
	m.says(e, "made by both", "mkdir late 2>/dev/null; echo v > late/f", "")
	m.mount("x", "tmpfs", 0, "", "late")
	m.blocked(e, "mount", "late/f")
	if e.status().Init != init {
		t.Error("the view was built again")
	}
}

// A filesystem that turns read-only, as after an error of its disk, keeps what a
// view has changed on it in sight.
func TestMountThatTurnsReadOnly(t *testing.T) {
	for _, how := range []string{"ro", "bind,ro"} {
		t.Run(how, func(t *testing.T) {
			m := newMounted(t)
			m.loop(loopfs.Ext4, "disk", loopfs.Options{})
			write(t, m.path("disk/f"), "host\n")
			write(t, m.path("disk/gone"), "host\n")
			e := newEnv(t)
			m.says(e, "written", "echo x > disk/f; rm disk/gone", "")
			remount(t, how, m.path("disk"))
			m.says(e, "still there", "ls disk; cat disk/f; echo y 2>/dev/null > disk/f || echo refused", "f\nlost+found\nx\nrefused\n")
			m.certain(e, "disk/f", "disk/gone")
			remount(t, map[string]string{"ro": "rw", "bind,ro": "bind,rw"}[how], m.path("disk"))
			m.says(e, "writable again", "echo y > disk/f; cat disk/f", "y\n")
			m.certain(e, "disk/f", "disk/gone")
		})
	}
}

// Other mounts of the same filesystem come later, and one of them would be the
// natural place of the layer. What it holds stays where it is planned for.
func TestMountThatWidens(t *testing.T) {
	m := newMounted(t)
	image := loopfs.Image(t, loopfs.Ext4, 0)
	m.mkdir("whole")
	loopfs.Mount(t, loopfs.Ext4, image, loopfs.Options{At: m.path("whole")})
	m.mkdir("whole/data")
	write(t, m.path("whole/data/f"), "host\n")
	m.mount(m.path("whole/data"), "", unix.MS_BIND, "", "part")
	dev := source(t, m.path("whole"))
	m.unmount("whole")
	e := newEnv(t)
	m.says(e, "written", "echo x > part/f", "")
	m.mount(dev, "ext4", 0, "", "whole")
	m.mount(m.path("part"), "", unix.MS_BIND, "", "a")
	remount(t, "bind,ro", m.path("part"))
	m.says(e, "one file under all names", "cat part/f whole/data/f a/f; echo y > a/f; cat part/f whole/data/f", "x\nx\nx\ny\ny\n")
	m.certain(e, "part/f")
}
