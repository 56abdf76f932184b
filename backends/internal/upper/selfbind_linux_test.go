package upper

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// A directory that is bound on itself, as a mount point made private is, shows
// what the overlay has below it: its changes are changes like any other.
func TestDirectoryBoundOnItselfIsNotCovered(t *testing.T) {
	l := newLab(t, "mkdir srv; echo a > srv/f; echo b > srv/gone")
	l.unmount()
	for _, dir := range []string{l.host, l.host + "/srv"} {
		must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	}
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(l.host))
	must(t, err)
	if len(infos) == 0 {
		t.Fatalf("%s is no mount", l.host)
	}
	m := infos[0]
	src, err := json.Marshal(Source{Point: l.host, Dev: fmt.Sprintf("%d:%d", m.Major, m.Minor), FS: m.FSType, Root: m.Root})
	must(t, err)
	must(t, os.WriteFile(l.env+"/layers/root/source.json", src, 0o600))
	l.mount()
	l.inView("echo c >> srv/f; rm srv/gone; echo n > srv/new")
	l.want("modified srv/f\ndeleted srv/gone\nadded srv/new\n")
}
