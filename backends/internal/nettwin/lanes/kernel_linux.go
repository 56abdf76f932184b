package lanes

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// kernel is a routing socket in the host's network namespace.
type kernel struct {
	*rtnl.Conn
	// step is called after everything that changed the host; tests die in it.
	step func()
}

func dial(host int) (*kernel, error) {
	c, err := rtnl.DialStrict(host)
	if err != nil {
		return nil, err
	}
	return &kernel{c, func() {}}, nil
}

// do sends one request and waits for the answer.
func (k *kernel) do(typ uint16, flags int, msg []byte) error {
	err := k.Request(typ, flags, msg)
	k.step()
	return err
}

// add makes something that must not be there yet: what is there is somebody
// else's.
func (k *kernel) add(typ uint16, msg []byte) error {
	return k.do(typ, unix.NLM_F_CREATE|unix.NLM_F_EXCL, msg)
}

// remove deletes something that may be gone, or its interface with it.
func (k *kernel) remove(typ uint16, msg []byte) error {
	err := k.do(typ, 0, msg)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func family(six bool) uint8 {
	if six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
