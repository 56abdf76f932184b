package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/netns"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/rtnl"
)

// topic is something of the host's network that decides how much a twin can show.
// It looks at what is there and changes nothing; what a twin does with it, the
// finding says.
type topic struct {
	name string
	look func(*hostNet) (backends.Finding, error)
}

var topics = []topic{
	{"lane numbers", laneNumbers},
	{"reverse path filter", reversePathFilter},
	{"router advertisements", routerAdvertisements},
	{"link kinds", linkKinds},
	{"tun owners", tunOwners},
	{"route kinds", routeKinds},
	{"way back", wayBack},
	{"owners", owners},
	{"transparent proxy", transparentProxy},
	{"ping", pingGroups},
}

// hostNet is the network that topics look at, read once.
type hostNet struct {
	ns     int
	links  []rtnl.Link
	routes [][]byte // both families, all tables
	// conflicts are what lanes have to evade.
	conflicts []lanes.Conflict
	// firewall is what its packet filters tell, new and legacy. Nobody but root may
	// read them.
	firewall func() (*nft.Seen, error)
}

// hostFindings looks at the network of the calling thread.
func hostFindings(ctx context.Context) []backends.Finding {
	unseen := func(name string, err error) backends.Finding {
		return backends.Finding{Name: name, Status: "degraded", Detail: err.Error(), Fix: check{fix: "run as root"}.advice(err)}
	}
	ns, err := netns.Current()
	if err != nil {
		return []backends.Finding{unseen("network of the host", err)}
	}
	defer ns.Close()
	h, err := readHost(int(ns.Fd()))
	if err != nil {
		return []backends.Finding{unseen("network of the host", err)}
	}
	var found []backends.Finding
	for _, t := range topics {
		var f backends.Finding
		// Reading /proc/sys/net needs no right, entering a namespace does: the thread
		// of [limited] need not be in this one.
		err := limited(ctx, func(context.Context) (err error) {
			if err := enter(int(ns.Fd())); err != nil {
				return err
			}
			f, err = t.look(h)
			return err
		})
		if err != nil {
			f = unseen(t.name, err)
		}
		f.Name = t.name
		found = append(found, f)
	}
	return found
}

// enter moves the thread to a network namespace, unless it is there.
func enter(ns int) error {
	var there, here unix.Stat_t
	if err := errors.Join(unix.Fstat(ns, &there), unix.Stat("/proc/thread-self/ns/net", &here)); err != nil {
		return err
	}
	if there.Dev == here.Dev && there.Ino == here.Ino {
		return nil
	}
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return nil
}

func readHost(ns int) (*hostNet, error) {
	c, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	h := &hostNet{ns: ns}
	if h.conflicts, err = lanes.Conflicts(ns); err != nil {
		return nil, err
	}
	h.firewall = sync.OnceValues(func() (*nft.Seen, error) { return nettwin.Firewall(ns) })
	if h.links, err = c.Links(); err != nil {
		return nil, err
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		m := make([]byte, unix.SizeofRtMsg)
		m[0] = family
		routes, err := c.Dump(unix.RTM_GETROUTE, m)
		if err != nil {
			return nil, err
		}
		h.routes = append(h.routes, routes...)
	}
	return h, nil
}

// link names the interface with a number.
func (h *hostNet) link(index int) string {
	for _, l := range h.links {
		if l.Index == index {
			return l.Name
		}
	}
	return fmt.Sprintf("#%d", index)
}

// sysctl reads a value below /proc/sys/net in the thread's namespace; "" where
// there is none.
func sysctl(name string) (string, error) {
	b, err := os.ReadFile("/proc/sys/net/" + name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(b)), err
}

func fine(format string, args ...any) (backends.Finding, error) {
	return backends.Finding{Status: "ok", Detail: fmt.Sprintf(format, args...)}, nil
}

func lesser(fix, format string, args ...any) (backends.Finding, error) {
	return backends.Finding{Status: "degraded", Detail: fmt.Sprintf(format, args...), Fix: fix}, nil
}

// listed joins names, and counts those that are too many for one line.
func listed(names []string) string {
	const most = 6
	if n := len(names) - most; n > 1 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}
