package nettwin

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/userns"
)

const sysctlRoot = "/proc/sys/net"

// noisySysctls answer each reader differently.
var noisySysctls = map[string]bool{
	// Read in the reader's user namespace, and set by whoever knows the twin's.
	"ipv4/ping_group_range": true,
}

// ownSysctls are the twin's own business by their last element: nobody
// advertises routers there, addresses are copied and must be usable at once.
var ownSysctls = map[string]bool{
	"accept_ra": true, "autoconf": true, "accept_dad": true, "dad_transmits": true,
	"addr_gen_mode": true, "stable_secret": true, "mtu": true, "tcp_fastopen_key": true,
	"ip_forward": true, // the same value as conf/all/forwarding, and writing it resets all others
}

// quietIPv6 is set on every TAP before it goes up. A TAP would add a second
// link-local address beside the copied one (addr_gen_mode 1 is none).
var quietIPv6 = map[string]string{"accept_ra": "0", "autoconf": "0", "accept_dad": "0", "dad_transmits": "0", "addr_gen_mode": "1"}

// readSysctls reads everything below net in the calling thread's namespace that
// somebody can set, by path relative to it. Read-only values count connections
// or belong to the whole machine. What cannot be read is left out.
func readSysctls() (map[string]string, error) {
	out := make(map[string]string, 1024)
	buf := make([]byte, 4096)
	err := filepath.WalkDir(sysctlRoot, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) { // a link went away meanwhile
				return nil
			}
			return err
		}
		if d.IsDir() {
			return nil
		}
		name := p[len(sysctlRoot)+1:]
		if noisySysctls[name] {
			return nil
		}
		if v, ok := readSysctl(p, buf); ok {
			out[name] = v
		}
		return nil
	})
	return out, err
}

// readSysctl reads one writable file by bare system calls: there are a thousand of them,
// and the poller's part in an os.File costs as much as the read.
func readSysctl(path string, buf []byte) (string, bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o222 == 0 {
		return "", false
	}
	n, err := unix.Read(fd, buf) // the kernel gives the whole value in one read
	if err != nil {
		return "", false
	}
	return strings.TrimSuffix(string(buf[:n]), "\n"), true
}

// copySysctls gives the calling thread's namespace the values of the host, and
// returns the names of those that it would not take.
func copySysctls(host map[string]string) []string {
	var wanted []string
	for _, name := range slices.SortedFunc(maps.Keys(host), allFirst) {
		if !ownSysctls[name[strings.LastIndexByte(name, '/')+1:]] {
			wanted = append(wanted, name)
		}
	}
	// Some are held against others: the range of local ports against where
	// unprivileged ones begin. So what was refused is tried once more.
	var refused []string
	for _, name := range writeSysctls(host, writeSysctls(host, wanted)) {
		refused = append(refused, dotted(name))
	}
	return refused
}

// writeSysctls returns the names that were refused.
func writeSysctls(host map[string]string, names []string) []string {
	var refused []string
	buf := make([]byte, 4096)
	for _, name := range names {
		p := filepath.Join(sysctlRoot, name)
		// Read again now: writing conf/all changes every interface.
		if v, ok := readSysctl(p, buf); !ok || v == host[name] {
			continue // not there, or not to be set, except in the initial namespace
		}
		if err := writeSysctl(name, host[name]); err != nil {
			refused = append(refused, name)
		}
	}
	return refused
}

// allFirst orders conf/all before conf/default before the interfaces, whatever
// their names: a write to the former is passed on to the latter. And forwarding
// before the others, for a router takes no redirects (accept_redirects).
func allFirst(a, b string) int { return strings.Compare(allKey(a), allKey(b)) }

func allKey(name string) string {
	name = strings.Replace(name, "/conf/all/", "/conf/\x00/", 1)
	name = strings.Replace(name, "/\x00/forwarding", "/\x00/\x00", 1)
	return strings.Replace(name, "/conf/default/", "/conf/\x01/", 1)
}

func writeSysctl(name, value string) error {
	f, err := os.OpenFile(filepath.Join(sysctlRoot, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// quiet keeps the kernel from configuring a link by itself. IPv6 may be off.
func quiet(link string) error {
	for k, v := range quietIPv6 {
		err := writeSysctl("ipv6/conf/"+link+"/"+k, v)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openPing lets every group use ping sockets: a canary has no raw ones. The
// kernel reads the groups' numbers in the writer's user namespace, so it is
// written as root of the one that owns the twin; nil is the caller's.
func openPing(owner *os.File) error {
	const name, every = "ipv4/ping_group_range", "0 2147483646" // all that a view maps
	if owner == nil {
		return writeSysctl(name, every)
	}
	f, err := os.OpenFile(filepath.Join(sysctlRoot, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	err = userns.Write(owner, int(f.Fd()), []byte(every))
	if errors.Is(err, unix.EINVAL) { // another map: what it has no groups for stays closed
		return nil
	}
	return err
}

// sysctlLink is the link that a dotted name is about, "" when about none.
func sysctlLink(name string) string {
	f := strings.SplitN(name, ".", 5) // net.ipv4.conf.LINK.name
	if len(f) < 5 || f[2] != "conf" && f[2] != "neigh" {
		return ""
	}
	return strings.ReplaceAll(f[3], "/", ".")
}

// dotted spells a path as sysctl(8) does: a dot in a link's name becomes a slash.
func dotted(name string) string {
	return "net." + strings.Map(func(r rune) rune {
		switch r {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return r
	}, name)
}
