package nettwin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// procNet reads a file of /proc/net as the inside of the twin has it.
func (l *testLab) procNet(t testing.TB, name string) string {
	t.Helper()
	var b []byte
	must(t, l.inside.Do(func() (err error) {
		b, err = os.ReadFile("/proc/thread-self/net/" + name)
		return err
	}))
	return string(b)
}

// ringDrops counts the frames that the transmit rings of the twin's TAPs dropped:
// the one place between the application inside and the relay that could.
func (l *testLab) ringDrops(t testing.TB) (n uint64) {
	t.Helper()
	found := 0
	for line := range strings.Lines(l.procNet(t, "dev")) {
		name, numbers, ok := strings.Cut(line, ":")
		if f := strings.Fields(numbers); ok && strings.TrimSpace(name) != "lo" && len(f) >= 16 {
			drop, err := strconv.ParseUint(f[11], 10, 64) // eight numbers of receiving, then bytes, packets, errs
			must(t, err)
			n += drop
			found++
		}
	}
	if found == 0 {
		t.Fatal("the twin has no link")
	}
	return n
}

// counter is one of the twin's counters in /proc/net/netstat ("TcpExt").
func (l *testLab) counter(t testing.TB, group, name string) uint64 {
	t.Helper()
	var names []string
	for line := range strings.Lines(l.procNet(t, "netstat")) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != group+":" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		for i, s := range names {
			if s == name {
				n, err := strconv.ParseUint(f[i], 10, 64)
				must(t, err)
				return n
			}
		}
	}
	t.Fatalf("there is no counter %s %s", group, name)
	return 0
}

// peak is the most memory that a process had resident at once, in bytes.
func peak(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			n, err := strconv.Atoi(f[1])
			must(t, err)
			return n << 10
		}
	}
	t.Fatalf("process %d has no VmHWM", pid)
	return 0
}

// relayBound is the most memory that a relay may ever have resident while it
// carries ordinary load, however many streams that is.
const relayBound = 130_000_000

// inBounds looks at a relay after load.
func (l *testLab) inBounds(t testing.TB) {
	t.Helper()
	s := l.twin.Status()
	if s.Relay == 0 {
		t.Fatalf("the relay died: %s", s.Err)
	}
	if n := peak(t, s.Relay); n > relayBound {
		t.Errorf("peak memory of the relay %d MB, want at most %d", n/1e6, relayBound/1_000_000)
	}
	if n := l.ringDrops(t); n != 0 {
		t.Errorf("the rings of the twin's links dropped %d frames", n)
	}
	if n := l.counter(t, "TcpExt", "TCPOFOQueue"); n != 0 {
		t.Errorf("%d segments came out of order", n)
	}
}

// open opens a socket in the namespace of the thread and connects it, or begins
// to. It waits in this process's poller, and in no thread.
func open(to netip.AddrPort, typ int) (*os.File, error) {
	family := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), to.String())
	if err := unix.Connect(fd, sa); err != nil && err != unix.EINPROGRESS {
		f.Close()
		return nil, fmt.Errorf("connect %s: %w", to, err)
	}
	return f, nil
}

// opened opens many sockets in the twin before the first is answered.
func (l *testLab) opened(t testing.TB, typ int, addr string, n int) []*os.File {
	t.Helper()
	to := netip.MustParseAddrPort(addr)
	files := make([]*os.File, 0, n)
	must(t, l.inside.Do(func() error {
		for range n {
			f, err := open(to, typ)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		return nil
	}))
	return files
}

// control runs a system call on a file that waits in the poller.
func control(f *os.File, do func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(rc.Control(func(fd uintptr) { err = do(int(fd)) }), err)
}

// TestThousandConnections opens a thousand at once, and each is answered while
// all the others are open.
func TestThousandConnections(t *testing.T) {
	for _, addr := range []string{"203.0.113.80:80", "[2001:db8:80::80]:80"} {
		t.Run(addr, func(t *testing.T) {
			l := newLab(t)
			echo(t, l.server, "tcp", ":80")
			l.mirror(t, Options{})
			files := l.opened(t, unix.SOCK_STREAM, addr, 1000)
			errs := make([]error, len(files))
			var wg sync.WaitGroup
			for i, f := range files {
				wg.Go(func() { errs[i] = call(f, strconv.Itoa(i)) })
			}
			wg.Wait()
			must(t, errors.Join(errs...))
			if n := l.counts(t).Open; n != 1000 {
				t.Errorf("%d streams are open, want 1000", n)
			}
			l.inBounds(t)
			for _, f := range files {
				must(t, f.Close())
			}
			eventually(t, "every stream has ended", func() bool { return l.counts(t).Open == 0 })
		})
	}
}

// call waits for the greeting of an echo server, sends it a line and waits for
// that.
func call(f *os.File, line string) error {
	if err := f.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := f.WriteString(line + "\n"); err != nil {
		return err
	}
	r := bufio.NewReader(f)
	if _, err := r.ReadString('\n'); err != nil {
		return err
	}
	back, err := r.ReadString('\n')
	if back != line+"\n" {
		return errors.Join(err, fmt.Errorf("got %q back for %q", back, line))
	}
	return err
}

// TestDownloadRounds makes the same hundred downloads again and again. The server
// closes first each time, so ports come round to endpoints that would still be in
// TIME_WAIT if the relay's stack kept any; a connection that hangs is the sign.
func TestDownloadRounds(t *testing.T) {
	l := newLab(t)
	bulk(t, l.server)
	l.mirror(t, Options{})
	const rounds, flows, size = 15, 100, 256 << 10
	for round := range rounds {
		// Less than the minute that TIME_WAIT would last.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		errs := make([]error, flows)
		for i := range flows {
			wg.Go(func() { errs[i] = flow(ctx, l.inside, "203.0.113.80:95", down, size) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	l.inBounds(t)
}

// TestUploadDropsNothing fills the rings of the TAPs from the inside, where
// nothing slows a sender but a full window.
func TestUploadDropsNothing(t *testing.T) {
	l := newLab(t)
	bulk(t, l.server)
	l.mirror(t, Options{})
	for _, addr := range []string{"203.0.113.80:95", "[2001:db8:80::80]:95"} {
		transfer(t, l.inside, addr, up, 100, 100<<20)
	}
	l.inBounds(t)
}
