package relay

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// talk is a control socket whose other end is answered by f.
func talk(t *testing.T, f func(Request) []Answer) *control {
	t.Helper()
	ours, theirs, err := SocketPair()
	if err != nil {
		t.Fatal(err)
	}
	c, err := controlConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		answerAll(c, f)
	}()
	t.Cleanup(func() {
		ours.Close()
		<-done
	})
	return &control{conn: ours}
}

func answerAll(c *net.UnixConn, f func(Request) []Answer) {
	defer c.Close()
	buf := make([]byte, maxMessage)
	for {
		q, _, err := readRequest(c, buf)
		if err != nil {
			return
		}
		for _, a := range f(*q) {
			b, err := json.Marshal(a)
			if err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}
}

// TestControlPassesOverLateAnswers answers each request after the one before it
// has been answered again.
func TestControlPassesOverLateAnswers(t *testing.T) {
	met := way.Limit{Kind: way.Link, Subject: "eth1", Reason: "a test"}
	c := talk(t, func(q Request) []Answer {
		return []Answer{{ID: q.ID - 1}, {ID: q.ID, Limits: []way.Limit{met}, Next: q.ID}}
	})
	for n := uint64(1); n < 4; n++ {
		a, err := c.do(Request{Limits: new(uint64)}, nil)
		if err != nil || len(a.Limits) != 1 || a.Limits[0] != met || a.Next != n {
			t.Errorf("answer %d: %+v, %v; want the limit", n, a, err)
		}
	}
}

// TestControlBoundsAnswers hears what no relay of ours says.
func TestControlBoundsAnswers(t *testing.T) {
	evil := strings.Repeat("\x1b[2J", 1000)
	c := talk(t, func(q Request) []Answer {
		if q.Count {
			return []Answer{{ID: q.ID, Err: evil}}
		}
		return []Answer{{ID: q.ID, Limits: make([]way.Limit, 1000)}}
	})
	a, err := c.do(Request{Limits: new(uint64)}, nil)
	if err != nil || len(a.Limits) > maxLimits+1 {
		t.Errorf("%d limits, %v; want %d at most", len(a.Limits), err, maxLimits+1)
	}
	_, err = c.do(Request{Count: true}, nil)
	if err == nil || len(err.Error()) > 4*maxError || strings.ContainsRune(err.Error(), 0x1b) {
		t.Errorf("error %.40q…, want a short one that is safe to print", err)
	}
	if l := tidy(way.Limit{Kind: way.Kind(evil)}); strings.ContainsRune(string(l.Kind), 0x1b) || len(l.Kind) > maxKind {
		t.Errorf("kind %.40q of a limit", l.Kind)
	}
}

// TestLastWords are those of a process that somebody took over.
func TestLastWords(t *testing.T) {
	var out strings.Builder
	last := &tail{to: &out}
	if n, err := last.Write([]byte("panic: \x1b[2J\n\tmain.go:7\n")); n != 23 || err != nil {
		t.Errorf("%d bytes were taken, %v", n, err)
	}
	if want := "panic: \\x1b[2J\n  main.go:7\n"; last.String() != want || out.String() != want {
		t.Errorf("kept %q and passed on %q, want %q", last.String(), out.String(), want)
	}
	last.Write([]byte(strings.Repeat("x", 1<<20)))
	if n := len(last.String()); n > 4096 {
		t.Errorf("%d bytes are kept", n)
	}
}
