package canary

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dial is the built-in TCP probe. It is done by PID 1 itself, so that it needs
// no tool of the view's files, with Go's own resolver, so that the view's
// resolv.conf, hosts and nsswitch.conf count.
func dial(j job) report {
	ctx, cancel := context.WithTimeout(context.Background(), j.Timeout)
	defer cancel()
	d := net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	if j.Interface != "" {
		if err := bound(&d, j.Interface); err != nil {
			return failed(err.Error())
		}
	}
	c, err := d.DialContext(ctx, "tcp", j.Dial)
	if err != nil {
		return report{Exit: -1, Err: reason(err), TimedOut: errors.Is(ctx.Err(), context.DeadlineExceeded)}
	}
	c.Close()
	return report{}
}

// bound makes the dialer leave by one interface. Binding to a device needs no
// right since Linux 5.7; before, the interface's own address has to do.
func bound(d *net.Dialer, name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %s", name, reason(err))
	}
	d.ControlContext = func(_ context.Context, network, _ string, rc syscall.RawConn) error {
		var err error
		cerr := rc.Control(func(fd uintptr) {
			if err = unix.BindToDevice(int(fd), name); errors.Is(err, unix.EPERM) {
				err = bindAddress(int(fd), link, network == "tcp6")
			}
		})
		return errors.Join(cerr, err)
	}
	return nil
}

// bindAddress binds to the first address of the interface that suits.
func bindAddress(fd int, link *net.Interface, six bool) error {
	addrs, err := link.Addrs()
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", link.Name, err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || p.Addr().Is6() != six || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if six {
			return unix.Bind(fd, &unix.SockaddrInet6{Addr: p.Addr().As16()})
		}
		return unix.Bind(fd, &unix.SockaddrInet4{Addr: p.Addr().As4()})
	}
	return fmt.Errorf("%s has no address of the family", link.Name)
}

// reason is the innermost cause in the words of the system: the layers of a
// dial error repeat what the caller asked for.
func reason(err error) string {
	var (
		dns   *net.DNSError
		errno syscall.Errno
	)
	switch {
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timed out"
	}
	return err.Error()
}
