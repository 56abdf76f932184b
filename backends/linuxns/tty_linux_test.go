package linuxns

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// onTerminal runs a client with a terminal of its own; files that are given
// replace it.
func (e *env) onTerminal(t *testing.T, stdin, stdout *os.File, argv ...string) (*os.File, func() *os.ProcessState) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 33, Cols: 101}); err != nil {
		t.Fatal(err)
	}
	c := e.clientCmd(argv...)
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	ctty := 0
	if stdin != nil {
		c.Stdin, ctty = stdin, 1
	}
	if stdout != nil {
		c.Stdout = stdout
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: ctty}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		master.Close()
		slave.Close()
	})
	return master, func() *os.ProcessState {
		c.Wait()
		if attr, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || attr.Lflag&unix.ICANON == 0 {
			t.Errorf("the caller's terminal was not given back: %v", err)
		}
		return c.ProcessState
	}
}

func TestTerminal(t *testing.T) {
	e := newEnv(t)
	t.Run("the command has a terminal of the view", func(t *testing.T) {
		m, wait := e.onTerminal(t, nil, nil, "sh", "-c", "tty; stty size; echo hi > /dev/tty; exit 5")
		line(t, m, "/dev/pts/0")
		line(t, m, "33 101")
		line(t, m, "hi")
		if s := wait(); s.ExitCode() != 5 {
			t.Errorf("ended with %v", s)
		}
	})
	t.Run("its keys have their meaning there", func(t *testing.T) {
		m, wait := e.onTerminal(t, nil, nil, "sh", "-c", "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.01; done")
		line(t, m, "ready")
		m.Write([]byte{3}) // control-C
		line(t, m, "^Cinterrupted")
		if s := wait(); s.ExitCode() != 3 {
			t.Errorf("ended with %v", s)
		}
	})
	t.Run("it follows the size of the window", func(t *testing.T) {
		m, wait := e.onTerminal(t, nil, nil, "sh", "-c", "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done")
		line(t, m, "ready")
		if err := pty.Setsize(m, &pty.Winsize{Rows: 10, Cols: 20}); err != nil {
			t.Fatal(err)
		}
		line(t, m, "10 20")
		wait()
	})
	t.Run("output can still be a pipe", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, wait := e.onTerminal(t, nil, w, "sh", "-c", "test -t 0 && test -t 2 && ! test -t 1 && echo piped")
		w.Close()
		out, err := io.ReadAll(r)
		if err != nil || string(out) != "piped\n" {
			t.Errorf("read %q, %v", out, err)
		}
		if s := wait(); !s.Success() {
			t.Errorf("ended with %v", s)
		}
	})
	t.Run("input can still be a pipe", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		m, wait := e.onTerminal(t, r, nil, "sh", "-c", "read x; echo got $x")
		io.WriteString(w, "it\n")
		w.Close()
		line(t, m, "got it")
		if s := wait(); !s.Success() {
			t.Errorf("ended with %v", s)
		}
	})
	t.Run("nothing of a long output is lost", func(t *testing.T) {
		m, wait := e.onTerminal(t, nil, nil, "seq", "20000")
		done := make(chan string)
		go func() {
			var all strings.Builder
			buf := make([]byte, 64<<10)
			for !strings.Contains(all.String(), "\n20000\r\n") {
				n, err := m.Read(buf)
				all.Write(buf[:n])
				if err != nil {
					break
				}
			}
			done <- all.String()
		}()
		select {
		case out := <-done:
			if n := strings.Count(out, "\n"); n != 20000 {
				t.Errorf("%d lines", n)
			}
		case <-time.After(20 * time.Second):
			t.Error("the end did not come")
		}
		wait()
	})
}
