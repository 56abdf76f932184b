package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// askTime bounds one answer about ways. The twin's side has a few netlink
// messages to send for it.
const askTime = 5 * time.Second

// asker is the relay's end of the second socket: to the relay it is what
// [way.Keeper] is to the twin.
type asker struct {
	conn  *net.UnixConn
	slots chan struct{}

	mu   sync.Mutex
	next uint64
	open map[uint64]chan told
}

func newAsker(c *net.UnixConn) *asker {
	k := &asker{conn: c, slots: make(chan struct{}, maxAsks), open: map[uint64]chan told{}}
	go k.hear()
	return k
}

// hear takes answers until the socket ends; the process then ends too, by the
// other one.
func (k *asker) hear() {
	b := make([]byte, maxAsk)
	for {
		n, err := k.conn.Read(b)
		if err != nil || n == 0 {
			return
		}
		var a told
		if json.Unmarshal(b[:n], &a) != nil {
			continue
		}
		k.mu.Lock()
		c := k.open[a.ID]
		delete(k.open, a.ID)
		k.mu.Unlock()
		if c != nil {
			c <- a
		}
	}
}

// ask sends one question, with a descriptor or without (-1).
func (k *asker) ask(q ask, fd int) (told, error) {
	k.slots <- struct{}{}
	defer func() { <-k.slots }()
	c := make(chan told, 1)
	k.mu.Lock()
	k.next++
	q.ID = k.next
	k.open[q.ID] = c
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		delete(k.open, q.ID)
		k.mu.Unlock()
	}()
	b, err := json.Marshal(q)
	if err != nil {
		return told{}, err
	}
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	if _, _, err := k.conn.WriteMsgUnix(b, oob, nil); err != nil {
		return told{}, fmt.Errorf("ask for a way: %w", err)
	}
	late := time.NewTimer(askTime)
	defer late.Stop()
	select {
	case a := <-c:
		switch {
		case a.Limit != nil:
			return a, a.Limit
		case a.Err != "":
			return a, errors.New(a.Err)
		}
		return a, nil
	case <-late.C:
		return told{}, &way.Limit{Kind: way.Load, Reason: "the host was not made to go this way in time"}
	}
}

// Lane returns the mark of a lane. See [way.Keeper].
func (k *asker) Lane(l way.Lane) (uint32, error) {
	a, err := k.ask(ask{Lane: &l}, -1)
	return a.Mark, err
}

// Admit lets the answers to a flow in, whose bound socket is fd, and reports
// whether the host holds something for that.
func (k *asker) Admit(f way.Flow, fd int) (held bool, err error) {
	a, err := k.ask(ask{Admit: &f}, fd)
	return a.Held, err
}

// Release takes back what Admit did.
func (k *asker) Release(f way.Flow) {
	_, _ = k.ask(ask{Release: &f}, -1) // the twin's side takes back what is left when the relay ends
}

// Translated says where the host's own nat sends a flow.
func (k *asker) Translated(f way.Flow) (netip.AddrPort, error) {
	a, err := k.ask(ask{Translated: &f}, -1)
	return a.To, err
}
