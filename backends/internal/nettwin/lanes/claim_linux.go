package lanes

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/way"
)

// claim is a block's name, held. The listening socket dies with the process: it
// is closed on exec, and nobody is handed it.
type claim struct {
	block block
	l     *net.UnixListener
}

func (b block) socket() string { return fmt.Sprintf("@netsandbox/lanes/%d", b) }

// begin claims a block of numbers and writes that down.
func (l *Lanes) begin() error {
	if err := l.connect(); err != nil || l.claim != nil {
		return err
	}
	c, err := l.claimBlock()
	if err != nil {
		return err
	}
	l.step()
	// What an owner of the block left that died is ours to remove: a name is
	// claimed by one at a time.
	err = l.intend(c.block)
	l.step()
	if err == nil {
		_, err = l.kernel.sweep(c.block)
	}
	if err != nil {
		return errors.Join(err, c.release())
	}
	c.serve(l.opt.Owner)
	l.claim, l.checked = c, l.now()
	return nil
}

// claimBlock takes the first block that nobody has, of those that do not clash
// with the host, or else of those that have any number that does not.
func (l *Lanes) claimBlock() (*claim, error) {
	taken, err := l.taken()
	if err != nil {
		return nil, err
	}
	for _, enough := range []int{hops, 1} {
		for b := range block(blocks) {
			if taken.free(b) < enough {
				continue
			}
			c, err := take(int(l.host.Fd()), b)
			if !errors.Is(err, unix.EADDRINUSE) {
				return c, err
			}
		}
	}
	return nil, &way.Limit{Kind: way.Load, Subject: "lanes", Reason: "every block of marks is in use on the host"}
}

// take binds a block's name. EADDRINUSE: somebody has it.
func take(host int, b block) (c *claim, err error) {
	err = netns.Do(host, func() error {
		c, err = bind(b)
		return err
	})
	return c, err
}

// takeDead binds the names of those blocks that nobody has, all on one thread.
func takeDead(host int, bs []block) (dead []*claim, err error) {
	err = netns.Do(host, func() error {
		for _, b := range bs {
			c, err := bind(b)
			if errors.Is(err, unix.EADDRINUSE) {
				continue
			}
			if err != nil {
				return err
			}
			dead = append(dead, c)
		}
		return nil
	})
	return dead, err
}

// bind binds a block's name in the network namespace of the calling thread.
func bind(b block) (*claim, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: b.socket(), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("claim block %d of lanes: %w", b, err)
	}
	return &claim{b, l}, nil
}

// serve tells whoever asks who has the block, until release.
func (c *claim) serve(owner string) {
	go func() {
		for {
			conn, err := c.l.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				// Out of descriptors: the name is held all the same, and whoever asks
				// meanwhile sees who holds it, if not what for.
				time.Sleep(100 * time.Millisecond)
				continue
			}
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // the reader's loss
			_, _ = io.WriteString(conn, owner)
			_ = conn.Close()
		}
	}()
}

func (c *claim) release() error { return c.l.Close() }

// holder asks who has a block. What it cannot find out stays empty.
func holder(host int, b block) (pid int, owner string) {
	var c net.Conn
	err := netns.Do(host, func() (err error) {
		c, err = net.DialTimeout("unix", b.socket(), time.Second)
		return err
	})
	if err != nil {
		return 0, ""
	}
	defer c.Close()
	if raw, err := c.(*net.UnixConn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				pid = int(cred.Pid)
			}
		})
	}
	// Anybody may have bound the name: it is not waited for, and a short answer is
	// taken.
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	said, err := io.ReadAll(io.LimitReader(c, 256))
	if err != nil {
		return pid, ""
	}
	return pid, string(said)
}
