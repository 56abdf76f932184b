package hostlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// name is the abstract socket, shown as @netsandbox/trial by ss(8).
const name = "@netsandbox/trial"

// A holder answers at once. One that does not is stopped, and named by its
// credentials alone.
const patience = time.Second

// Lock is the right to run a trial on this host.
type Lock struct {
	files []*os.File   // the socket, then the directories
	said  atomic.Value // what those who connect are told, []byte
	stop  func()
}

// Take locks the host for a trial that will write at the given paths; without
// any, at the holder's base. It does not wait: a host that is taken is a
// [BusyError].
func Take(who Holder, paths ...string) (*Lock, error) {
	if who.Base == "" {
		who.Base = "/"
	}
	if len(paths) == 0 {
		paths = []string{who.Base}
	}
	sock, err := bind()
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, &BusyError{Holder: ask()}
	}
	if err != nil {
		return nil, fmt.Errorf("lock host: %w", err)
	}
	l := &Lock{files: []*os.File{sock}}
	seen := map[uint64]bool{}
	for _, p := range paths {
		if err := l.flock(who.Base, p, seen); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, l.serve(who)
}

// Files are what a keeper must inherit to hold the lock too.
func (l *Lock) Files() []*os.File { return l.files }

// Adopt takes over inherited files in another process. The host stays locked
// until that process releases it too.
func Adopt(who Holder, files []*os.File) (*Lock, error) {
	if len(files) == 0 {
		return nil, errors.New("adopt host lock: no files")
	}
	for _, f := range files {
		unix.CloseOnExec(int(f.Fd()))
	}
	l := &Lock{files: files}
	return l, l.serve(who)
}

// Close gives the host free, unless another process holds the same lock.
func (l *Lock) Close() error {
	if l.stop != nil {
		l.stop()
	}
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// bind makes the listening socket.
func bind() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err == nil {
		err = unix.Listen(fd, 16)
	}
	if err == nil {
		// Applier and keeper wait for the same connections: the one that comes
		// second must not hang in accept. O_NONBLOCK would not do, it is lost when
		// the runtime hands the descriptor on.
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("bind %s: %w", name, err)
	}
	return f, nil
}

// Describe changes what others are told, once the transaction has a name.
func (l *Lock) Describe(who Holder) error {
	b, err := json.Marshal(who)
	if err != nil {
		return fmt.Errorf("describe host lock: %w", err)
	}
	l.said.Store(b)
	return nil
}

// serve tells everybody who connects who has the lock. Applier and keeper serve
// the same socket, so it answers while either of them runs.
func (l *Lock) serve(who Holder) error {
	if err := l.Describe(who); err != nil {
		return err
	}
	wake, quit, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("serve host lock: %w", err)
	}
	ended := make(chan struct{})
	fds := []unix.PollFd{{Fd: int32(l.files[0].Fd()), Events: unix.POLLIN}, {Fd: int32(wake.Fd()), Events: unix.POLLIN}}
	go func() {
		defer close(ended)
		for {
			if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if fds[1].Revents != 0 {
				return
			}
			answer(int(fds[0].Fd), l.said.Load().([]byte))
		}
	}()
	l.stop = func() {
		quit.Close()
		<-ended
		wake.Close()
	}
	return nil
}

// answer takes one connection, if there still is one.
func answer(sock int, said []byte) {
	fd, _, err := unix.Accept4(sock, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return
	}
	_ = unix.Sendto(fd, said, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	unix.Close(fd)
}

// ask finds out who has the lock.
func ask() (who Holder) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return who
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	if unix.Connect(fd, &unix.SockaddrUnix{Name: name}) != nil {
		return who
	}
	// The kernel remembers who called listen(2), also while that process is stopped.
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		who.PID, who.UID = int(cred.Pid), cred.Uid
	}
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return who
	}
	var said Holder
	if json.Unmarshal(b[:n], &said) == nil {
		said.UID = who.UID
		return said
	}
	return who
}

// flock locks the filesystem that will hold a path, once.
func (l *Lock) flock(base, path string, seen map[uint64]bool) error {
	dir, dev, err := top(base, path)
	if err != nil {
		return fmt.Errorf("lock host: %w", err)
	}
	if seen[dev] {
		return nil
	}
	seen[dev] = true
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("lock host: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &BusyError{Filesystem: dir}
		}
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	l.files = append(l.files, f)
	return nil
}

// top returns the highest directory of the filesystem on which a path is, or
// would be made, but none above base. Two trials with one base that write
// anywhere to one filesystem meet there.
func top(base, path string) (dir string, dev uint64, err error) {
	dir = filepath.Clean(path)
	for dev, err = device(dir); err != nil; dev, err = device(dir) {
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) || dir == "/" {
			return "", 0, err
		}
		dir = filepath.Dir(dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", 0, err
	}
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return "", 0, err
	}
	for dir != "/" && dir != base {
		parent := filepath.Dir(dir)
		if above, err := device(parent); err != nil || above != dev {
			return dir, dev, err
		}
		dir = parent
	}
	return dir, dev, nil
}

// device returns the device of a directory.
func device(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, &os.PathError{Op: "stat", Path: dir, Err: unix.ENOTDIR}
	}
	return st.Dev, nil
}
