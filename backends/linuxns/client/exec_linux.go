package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// errGone: the connection ended before the command was accepted, so nothing ran.
var errGone = errors.New("the view ended before the command was started")

// Exec runs a command in the view and returns its status as a shell would: the
// exit code, or 128 plus the signal. With an error nothing was run, or its end
// was not seen, and the status is 125, 126 or 127.
func Exec(ctx context.Context, spec backends.Spec, r Request) (int, error) {
	signals := Catch()
	defer signals.release()
	return run(ctx, spec, r, signals, func() error { return nil })
}

// Run is [Exec] for a process that is there for this one command. The view is
// reached, or built, while the caller still gets ready; the command is sent only
// when ready returned without an error. What ready holds is not held for long: it
// is called before anything that may take its time.
func Run(ctx context.Context, spec backends.Spec, r Request, signals *Signals, ready func() error) (int, error) {
	return run(ctx, spec, r, signals, sync.OnceValue(ready))
}

func run(ctx context.Context, spec backends.Spec, r Request, signals *Signals, ready func() error) (int, error) {
	s, err := newSession(r)
	if err != nil {
		return StatusFailed, err
	}
	defer s.close()
	s.signals, s.ready = signals, ready
	status, err := s.attempt(ctx, spec)
	// Init or holder had just died. Only before it is accepted may a command be sent
	// again: afterwards it may have done half of its work. One that is dying takes
	// connections for some milliseconds more.
	again := 1
	for end := time.Now().Add(dyingTime); ctx.Err() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		switch {
		case !errors.Is(err, errGone):
			return status, err
		case wire.Unheard(err):
		case again > 0:
			again--
		default:
			return status, err
		}
		status, err = s.attempt(ctx, spec)
	}
	return status, err
}

// dyingTime bounds how long holders that end before they listen are followed by
// another try.
const dyingTime = 10 * time.Second

// session is one command with what of the caller's surroundings goes along.
type session struct {
	*streams
	signals *Signals
	ready   func() error
	detach  bool
	fds     []int // of files, without terminals
	start   wire.Start
	frame   []byte // start as it is sent
}

func newSession(r Request) (*session, error) {
	if len(r.Argv) == 0 {
		return nil, errors.New("no command given")
	}
	io, err := openStreams(r)
	if err != nil {
		return nil, err
	}
	env := filter(r.Env)
	s := &session{streams: io, detach: r.Detach}
	s.start = wire.Start{
		Argc: len(r.Argv), Envc: len(env), Detach: r.Detach, Umask: umask(), Limits: limits(),
	}
	for i, f := range s.files {
		if err := s.pass(i, f); err != nil {
			s.close()
			return nil, err
		}
	}
	if s.frame, err = wire.Encode(s.start, wire.Strings(r.Argv, env, []string{r.Cwd})); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// pass decides how a descriptor gets into the view.
func (s *session) pass(i int, f *os.File) error {
	fd := int(f.Fd())
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if errors.Is(err, unix.EBADF) { // closed by the caller: nothing to read or write
		if f, err = s.null(); err != nil {
			return err
		}
		fd = int(f.Fd())
		err = unix.Fstat(fd, &st)
	}
	if err != nil {
		return fmt.Errorf("look at descriptor %d: %w", i, err)
	}
	if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
		s.start.TTY[i] = true
		s.start.Rows, s.start.Cols = size.Row, size.Col
		return nil
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		reopenable(fd)
	case unix.S_IFSOCK, unix.S_IFREG:
	case unix.S_IFCHR:
		if unix.Major(st.Rdev) != 1 { // null, zero, full, random, urandom
			return fmt.Errorf("descriptor %d is a device and cannot be passed into a view", i)
		}
	default: // a directory would be a way into the host's tree
		return fmt.Errorf("descriptor %d is neither pipe, socket, file nor terminal and cannot be passed into a view", i)
	}
	s.fds = append(s.fds, fd)
	return nil
}

// reopenable lets the inside open /dev/stdout and /dev/stderr again, as scripts
// do: an anonymous pipe belongs to the caller's uid, which is another inside.
// Nobody else can reach it by a name, so a wider mode gives nothing away. A pipe
// that belongs to somebody else stays as it is.
func reopenable(fd int) {
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.PIPEFS_MAGIC {
		_ = unix.Fchmod(fd, 0o666)
	}
}

// attempt sends the command and follows it to its end.
func (s *session) attempt(ctx context.Context, spec backends.Spec) (int, error) {
	conn, err := s.dial(ctx, spec)
	if err != nil {
		return StatusFailed, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	// From before the command exists, or a signal in between would end us and
	// leave it.
	<-s.signals.caught
	if err := s.ready(); err != nil {
		return StatusFailed, err
	}
	if err := conn.Write(s.frame, s.fds...); err != nil {
		return StatusFailed, errors.Join(errGone, err)
	}
	given := s.giveUp(conn)
	e, fds, err := begin(conn)
	sig := given()
	defer func() { wire.CloseAll(fds) }()
	switch {
	case ctx.Err() != nil:
		return StatusFailed, ctx.Err()
	case err != nil && sig != 0:
		return 128 + int(sig), fmt.Errorf("interrupted: the holder of %s did not answer", spec.Name)
	case err != nil:
		return StatusFailed, err
	case e.Status != 0:
		return e.Status, errors.New(e.Error)
	}
	if !s.detach && !slices.Contains(s.start.TTY[:], true) {
		return follow(ctx, conn, nil, s.signals.c)
	}
	var master []int
	if e, master, err = next(conn); err != nil {
		return StatusFailed, err
	}
	fds = append(fds, master...)
	switch {
	case e.Status != 0:
		return e.Status, errors.New(e.Error)
	case s.detach:
		return 0, nil
	case len(master) != 1:
		return StatusFailed, errors.New("the view gave the command no terminal")
	}
	t, err := openTTY(master[0], s.files, s.start.TTY)
	if err != nil {
		return StatusFailed, err
	}
	fds = nil // the terminal's now
	defer t.close()
	return follow(ctx, conn, t, s.signals.c)
}

// grace is how long a holder may take to accept a command that is told to end.
const grace = 2 * time.Second

// giveUp closes the connection when a signal that would end us arrives and no
// command is there yet to get it. A holder that was stopped never answers, and a
// client that hands every signal on would wait for it for ever. The returned
// function ends the watch and says which signal it gave up for; any other is left
// for the command.
func (s *session) giveUp(conn *wire.Conn) func() syscall.Signal {
	accepted, done := make(chan struct{}), make(chan syscall.Signal, 1)
	go func() {
		var caught os.Signal
		select {
		case <-accepted:
			done <- 0
			return
		case caught = <-s.signals.c:
		}
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-accepted:
		case <-late.C:
			if sig := caught.(syscall.Signal); slices.Contains(ending, sig) {
				conn.Close()
				done <- sig
				return
			}
			<-accepted
		}
		s.signals.c <- caught
		done <- 0
	}()
	return func() syscall.Signal {
		close(accepted)
		return <-done
	}
}

// ending are the signals that would end a client of their own.
var ending = []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// begin waits until the command is accepted, or for why it is not.
func begin(conn *wire.Conn) (wire.Event, []int, error) {
	var e wire.Event
	_, fds, err := conn.Recv(&e)
	if err != nil {
		return e, nil, errors.Join(errGone, err)
	}
	if !e.Accepted && e.Status == 0 {
		return e, fds, errors.New("the view answers out of turn")
	}
	return e, fds, nil
}

// next waits for what is said of an accepted command.
func next(conn *wire.Conn) (wire.Event, []int, error) {
	var e wire.Event
	_, fds, err := conn.Recv(&e)
	if err != nil {
		return e, nil, lost(err)
	}
	return e, fds, nil
}

// Signals are what a command gets instead of us.
type Signals struct {
	c      chan os.Signal
	caught chan struct{} // closed when all are
}

// Catch begins to catch them, beside whatever else is done before a command is
// sent: each costs a switch to the thread of the runtime that blocks and unblocks
// signals, and back (sigenable in runtime/sigqueue.go), a third of a millisecond
// for all.
func Catch() *Signals {
	s := &Signals{make(chan os.Signal, 16), make(chan struct{})}
	go func() {
		signal.Notify(s.c, forwarded...)
		close(s.caught)
	}()
	return s
}

// release gives them back. A process that is about to end does without: it costs
// as much again.
func (s *Signals) release() {
	<-s.caught
	signal.Stop(s.c)
}

// forwarded are the signals that a command gets instead of us.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
	syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGALRM, syscall.SIGWINCH,
}

// follow passes signals on until the command ends.
func follow(ctx context.Context, conn *wire.Conn, t *tty, signals <-chan os.Signal) (int, error) {
	type message struct {
		e   wire.Event
		err error
	}
	end := make(chan message, 1)
	go func() {
		var m message
		var fds []int
		_, fds, m.err = conn.Recv(&m.e)
		wire.CloseAll(fds)
		end <- m
	}()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGWINCH && t != nil {
				t.resize()
				continue
			}
			n, ok := sig.(syscall.Signal)
			if ok {
				_ = conn.Send(wire.Control{Signal: int(n)}, nil) // an end is seen below
			}
		case m := <-end:
			if ctx.Err() != nil {
				return StatusFailed, ctx.Err()
			}
			if m.err == nil && m.e.Status != 0 {
				return m.e.Status, errors.New(m.e.Error)
			}
			if m.err != nil || !m.e.Exited {
				return StatusFailed, lost(m.err)
			}
			if m.e.Signal != 0 {
				return 128 + m.e.Signal, nil
			}
			return m.e.Exit, nil
		}
	}
}

func lost(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("the view ended while the command ran; how the command ended is not known")
	}
	return fmt.Errorf("lost the view while the command ran: %w", err)
}

// filter leaves out what names a socket of the host's session: from inside it
// would only make programs wait.
func filter(env []string) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR",
			"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "GPG_AGENT_INFO", "NOTIFY_SOCKET",
			"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "INVOCATION_ID", "JOURNAL_STREAM":
			continue
		}
		out = append(out, e)
	}
	return out
}

func limits() []wire.Limit {
	ls := make([]wire.Limit, 0, wire.Limits)
	for r := range wire.Limits {
		var l unix.Rlimit
		if err := unix.Prlimit(0, r, nil, &l); err != nil {
			break
		}
		ls = append(ls, wire.Limit{Cur: l.Cur, Max: l.Max})
	}
	return ls
}

// umask reads the file mode mask without setting it, which would race with
// other threads that make files.
func umask() int {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0o022
	}
	_, rest, ok := strings.Cut(string(b), "\nUmask:\t")
	var m int
	if _, err := fmt.Sscanf(rest, "%o", &m); !ok || err != nil {
		return 0o022
	}
	return m
}

// dial connects to the holder, starting one where none lives.
func (s *session) dial(ctx context.Context, spec backends.Spec) (*wire.Conn, error) {
	conn, err := wire.Dial(spec.Dir, envdir.ExecSocket)
	if !wire.Refused(err) {
		return conn, err
	}
	if err := s.ready(); err != nil {
		return nil, err
	}
	if err := Start(ctx, spec); err != nil {
		return nil, err
	}
	if conn, err = wire.DialAgain(spec.Dir, envdir.ExecSocket); wire.Unheard(err) {
		err = errors.Join(errGone, err)
	}
	return conn, err
}
