package builder

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// LayerArgv0 makes the running program stage one layer when it is re-executed.
const LayerArgv0 = "netsandbox-layer"

// job is what such a process is told. What may hold any bytes is in the body of
// the frame: the environment's directory, mount point, root, key, and what to
// look up.
type job struct {
	Index     int    `json:"index"`
	Dev       string `json:"dev"`
	FS        string `json:"fs"`
	ReadOnly  bool   `json:"read_only"`
	Attrs     uint64 `json:"attrs"`
	Mode      string `json:"mode"`
	Throwaway bool   `json:"throwaway"`
	Merged    bool   `json:"merged"` // the last descriptor is the view's mount namespace
}

// staged is its answer, beside the detached overlay.
type staged struct {
	Treatment string `json:"treatment"`
	Reason    string `json:"reason"`
	Attrs     uint64 `json:"attrs"`
	Error     string `json:"error"`
}

// job describes a piece, with what is lent to the process.
func (b *build) job(p *piece, i int, inside []string) (job, []byte, []int) {
	j := job{
		Index: i, Dev: p.Dev, FS: p.FS, ReadOnly: p.ReadOnly, Attrs: p.attrs,
		Mode: b.Mode.Name, Throwaway: b.Throwaway, Merged: b.Merged != nil,
	}
	var fds []int
	if b.Mode.UserNS() {
		fds = append(fds, b.User)
	}
	if j.Merged {
		fds = append(fds, int(b.Merged.Fd()))
	}
	body := append([]string{string(b.Dir), p.Point, p.Root, p.Key}, inside...)
	return j, []byte(strings.Join(body, "\x00")), fds
}

// LayerMain is the whole life of such a process. It does not return.
func LayerMain() {
	runtime.LockOSThread()
	conn, err := wire.New(3)
	if err != nil {
		os.Exit(1)
	}
	r, tree, err := stageApart(conn)
	if err != nil {
		r.Error = err.Error()
		err = conn.Send(r, nil)
	} else {
		err = conn.Send(r, nil, tree)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func stageApart(conn *wire.Conn) (staged, int, error) {
	var j job
	body, fds, err := conn.Recv(&j)
	if err != nil {
		return staged{}, -1, err
	}
	s := strings.Split(string(body), "\x00")
	if len(s) < 4 {
		return staged{}, -1, errors.New("read job: it is incomplete")
	}
	b := &build{Request: Request{Dir: envdir.Dir(s[0]), Throwaway: j.Throwaway, User: -1}, scratch: -1, root: -1}
	if b.Mode, err = harden.Lookup(j.Mode); err != nil {
		return staged{}, -1, err
	}
	if b.Mode.UserNS() && len(fds) > 0 {
		b.User = fds[0]
	}
	if j.Merged && len(fds) > 0 {
		b.Merged = os.NewFile(uintptr(fds[len(fds)-1]), "view")
	}
	p := &piece{attrs: j.Attrs, tree: -1, Entry: mountplan.Entry{
		Mount: mountplan.Mount{Dev: j.Dev, FS: j.FS, ReadOnly: j.ReadOnly, Point: s[1], Root: s[2]},
		Key:   s[3], Treatment: mountplan.Layer,
	}}
	tree, err := b.alone(p, j.Index, s[4:])
	r := staged{Reason: p.Reason, Attrs: p.attrs}
	if p.Reason != "" {
		r.Treatment = p.Treatment
	}
	return r, tree, err
}

// alone stages the piece in this process's mount namespace and looks up what
// will be looked up in it.
func (b *build) alone(p *piece, i int, inside []string) (int, error) {
	// Joining a mount namespace needs a root and working directory of one's own.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return -1, fmt.Errorf("unshare: %w", err)
	}
	var err error
	if b.self, err = os.Open("/proc/thread-self/ns/mnt"); err != nil {
		return -1, err
	}
	// The scratch directory of this namespace; its content is the same.
	b.scratch, err = unix.Open(b.Dir.Path(envdir.Build), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	tree, err := b.stage(p, i)
	if err != nil {
		return -1, err
	}
	for _, rel := range inside {
		// Whether it is there is found out later; now it counts that there is an answer.
		if fd, err := mounts.Place(tree, rel, false); err == nil {
			unix.Close(fd)
		}
	}
	return tree, nil
}
