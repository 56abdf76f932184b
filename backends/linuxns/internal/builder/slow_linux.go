package builder

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/deadfs"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// patience is how long a filesystem that depends on another machine or process
// may take to be layered.
const patience = 5 * time.Second

// slow stages the pieces whose server could be gone, at once, each in a process
// with a mount namespace of its own, and only for a while.
//
// A process and no thread: a call that a server has taken and does not answer
// cannot be interrupted, and a process ends only when all of its threads do; a
// holder with such a thread could neither be ended nor let go of its lock. And
// this comes before there is an overlay with an upper: whatever is mounted in a
// namespace stays mounted with the process that hangs in it.
func (b *build) slow(pieces []piece, plan mountplan.Plan) error {
	waiting := map[int]*apart{}
	end := time.Now().Add(patience)
	var errs []error
	for i := range pieces {
		p := &pieces[i]
		switch {
		case p.Treatment != mountplan.Layer || !p.Slow:
		case slices.Contains(b.Silent, p.name()) && deadfs.Check(p.Point) != nil:
			b.silent(p) // asked again now and then, and not for as long
		default:
			a, err := b.begin(p, i, end, inside(plan, i))
			if err != nil {
				errs = append(errs, fmt.Errorf("stage %s: %w", p.Point, err))
				continue
			}
			waiting[i] = a
		}
	}
	for i := range pieces {
		if a := waiting[i]; a != nil {
			errs = append(errs, b.collect(&pieces[i], i, a))
		}
	}
	return errors.Join(errs...)
}

// inside lists what else will be looked up in a layer: places of mounts and of
// covers. The process tries them, while the layer can still be left out.
func inside(plan mountplan.Plan, i int) []string {
	paths := slices.Concat(plan.Covers, plan.State)
	for _, e := range plan.Entries {
		paths = append(paths, e.Point)
	}
	var out []string
	for _, p := range paths {
		if rel, ok := strings.CutPrefix(p, plan.Entries[i].Point+"/"); ok {
			out = append(out, rel)
		}
	}
	return out
}

// name says which mount this is; ids are others in every mount namespace.
func (p *piece) name() string { return p.Dev + " " + p.Point }

// silent excludes a piece that did not answer, now or in an earlier build.
func (b *build) silent(p *piece) {
	p.exclude(fmt.Errorf("%s did not answer within %v", p.FS, patience))
	b.view.Silent = append(b.view.Silent, p.name())
}

// apart is a process that stages one piece.
type apart struct {
	cmd  *exec.Cmd
	conn *wire.Conn
}

// begin starts one. Its mount namespace is a copy of the builder's from the
// moment of its birth.
func (b *build) begin(p *piece, i int, end time.Time, inside []string) (*apart, error) {
	conn, fd, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{LayerArgv0}, Dir: "/",
		Env:         []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", runtimeTuning},
		ExtraFiles:  []*os.File{socket},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS},
	}
	if err := c.Start(); err != nil {
		conn.Close()
		return nil, err
	}
	j, body, fds := b.job(p, i, inside)
	if err := errors.Join(conn.SetDeadline(end), conn.Send(j, body, fds...)); err != nil {
		conn.Close()
		return nil, errors.Join(err, c.Process.Kill(), c.Wait())
	}
	return &apart{c, conn}, nil
}

// collect takes what the process has made. One that does not answer is left
// behind.
func (b *build) collect(p *piece, i int, a *apart) error {
	defer a.conn.Close()
	var r staged
	_, fds, err := a.conn.Recv(&r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		b.silent(p)
		deadfs.Remember(p.Point)
		deadfs.Abandon(a.cmd)
		return nil
	}
	if werr := a.cmd.Wait(); err != nil {
		p.exclude(fmt.Errorf("stage it in a process of its own: %w", errors.Join(err, werr)))
		return nil
	}
	if r.Error != "" || len(fds) != 1 {
		wire.CloseAll(fds)
		p.exclude(errors.New(r.Error))
		return nil
	}
	if r.Reason != "" {
		p.Treatment, p.Reason = r.Treatment, r.Reason
	}
	p.attrs = r.Attrs
	return b.keep(p, strconv.Itoa(i), fds[0])
}
