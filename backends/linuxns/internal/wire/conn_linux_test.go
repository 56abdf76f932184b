package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
)

// join returns both ends of a connection.
func join(t *testing.T) (*Conn, *Conn) {
	t.Helper()
	a, fd, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	for _, c := range []*Conn{a, b} {
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func TestFrame(t *testing.T) {
	a, b := join(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	body := bytes.Repeat([]byte{0, 0xff, 'x'}, 1<<20) // more than any socket buffer
	go func() {
		a.Send(Start{Argc: 3}, body, int(w.Fd()))
		w.Close()
		a.Send(Start{Argc: 4}, nil)
	}()
	var s Start
	got, fds, err := b.Recv(&s)
	if err != nil || s.Argc != 3 || !bytes.Equal(got, body) || len(fds) != 1 {
		t.Fatalf("received %+v, %d bytes, %d descriptors, %v", s, len(got), len(fds), err)
	}
	if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor is not close-on-exec (%v)", err)
	}
	if _, err := unix.Write(fds[0], []byte("through")); err != nil {
		t.Error(err)
	}
	CloseAll(fds)
	if all, err := io.ReadAll(r); err != nil || string(all) != "through" {
		t.Errorf("read %q, %v", all, err)
	}
	if _, fds, err = b.Recv(&s); err != nil || s.Argc != 4 || len(fds) != 0 {
		t.Errorf("second frame %+v, %d descriptors, %v", s, len(fds), err)
	}
	a.Close()
	if _, _, err := b.Recv(&s); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// What comes from inside a view is hostile.
func TestHostileFrames(t *testing.T) {
	header := func(head, body uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, head), body)
	}
	for _, tc := range []struct {
		name string
		raw  []byte
		says string
	}{
		{"too long", header(0, maxFrame+1), "too long"},
		{"lengths that overflow", header(1<<31, 1<<31), "too long"},
		{"cut in the header", header(4, 0)[:5], "EOF"},
		{"cut in the body", append(header(2, 10), '{', '}'), "EOF"},
		{"no JSON", append(header(2, 0), '{', '{'), "decode frame"},
		{"another type", append(header(12, 0), `{"argc":"x"}`...), "decode frame"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := join(t)
			if err := a.Control(func(fd int) { unix.Write(fd, tc.raw) }); err != nil {
				t.Fatal(err)
			}
			a.Close()
			var s Start
			if _, _, err := b.Recv(&s); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want %q", err, tc.says)
			}
		})
	}
	t.Run("more descriptors than there may be", func(t *testing.T) {
		a, b := join(t)
		before := open(t)
		fds := make([]int, maxFiles+3)
		for i := range fds {
			fds[i] = 2
		}
		if err := a.Send(Start{}, nil, fds...); err != nil {
			t.Fatal(err)
		}
		var s Start
		if _, got, err := b.Recv(&s); err == nil || len(got) > 0 {
			t.Errorf("took %d descriptors, %v", len(got), err)
		}
		if after := open(t); after != before {
			t.Errorf("%d descriptors leaked", after-before)
		}
	})
}

// open counts the descriptors of this process.
func open(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func TestUnpack(t *testing.T) {
	argv, env, cwd, err := Start{Argc: 2, Envc: 1}.Unpack(Strings([]string{"a", ""}, []string{"b=\xff"}, []string{"/d"}))
	if err != nil || len(argv) != 2 || argv[0] != "a" || argv[1] != "" || env[0] != "b=\xff" || cwd != "/d" {
		t.Errorf("%q %q %q, %v", argv, env, cwd, err)
	}
	for _, s := range []Start{{Argc: 0}, {Argc: 1, Envc: -1}, {Argc: 1 << 40}, {Argc: 3, Envc: 1}, {Argc: 1, Envc: 1}} {
		if _, _, _, err := s.Unpack(Strings([]string{"a", "b"}, []string{"c"}, []string{"d"})); err == nil {
			t.Errorf("%+v was taken", s)
		}
	}
	if _, _, _, err := (Start{Argc: 1}).Unpack([]byte("a\x00d")); err == nil {
		t.Error("a body without its end was taken")
	}
}

func TestListen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30)) // no room in sun_path
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(dir, "s", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again, err := Listen(dir, "s", 0o600); err != nil { // in place of a dead one's
		t.Fatal(err)
	} else {
		l.Close()
		l = again
	}
	c, err := Dial(dir, "s")
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	who, err := s.Peer()
	if err != nil || who.UID != uint32(os.Getuid()) || who.PID != os.Getpid() {
		t.Errorf("peer %+v, %v", who, err)
	}
	gone := make(chan bool)
	go func() { s.HungUp(); close(gone) }()
	if err := c.Send(Start{}, nil); err != nil { // is no hang-up, and is not taken
		t.Fatal(err)
	}
	select {
	case <-gone:
		t.Fatal("hung up early")
	case <-time.After(20 * time.Millisecond):
	}
	c.Close()
	select {
	case <-gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the hang-up was not seen")
	}
}

func TestReplyKeepsWhatCallersBranchOn(t *testing.T) {
	var r Reply
	r.SetError(fmt.Errorf("stage x: %w", backends.ErrOutsideBase))
	if err := r.Err(); !errors.Is(err, backends.ErrOutsideBase) || err.Error() != "stage x: path is outside the base" {
		t.Errorf("error %v", err)
	}
	r = Reply{}
	r.SetError(errors.New("plain"))
	if err := r.Err(); err == nil || errors.Unwrap(err) != nil {
		t.Errorf("error %v", err)
	}
	if r = (Reply{}); r.Err() != nil {
		t.Error("an empty reply is an error")
	}
}

// TestUnheard: a listener that closes over connections which nobody took resets
// them, and one that read what it was sent only ends them.
func TestUnheard(t *testing.T) {
	dir := t.TempDir()
	l, err := Listen(dir, "socket", 0o600)
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := Dial(dir, "socket")
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if err := waiting.Send(Start{}, nil); err != nil {
		t.Fatal(err)
	}
	l.Close()
	var s Start
	if _, _, err := waiting.Recv(&s); !Unheard(err) {
		t.Errorf("nobody took it: %v", err)
	}
	if err := waiting.Send(Start{}, nil); !Unheard(err) {
		t.Errorf("nobody is there: %v", err)
	}
	if _, err := Dial(dir, "socket"); !Refused(err) || Unheard(err) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := DialAgain(dir, "socket"); !Refused(err) || !Unheard(err) {
		t.Errorf("nobody listens any more: %v", err)
	}

	a, b := join(t)
	if err := a.Send(Start{}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Recv(&s); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, _, err := a.Recv(&s); !errors.Is(err, io.EOF) || Unheard(err) {
		t.Errorf("it was read: %v", err)
	}
}
