package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// matrixKind is one thing that can be at a name, and how it comes to be there:
// on the host before the view exists, and in a view, by the commands that people
// and packages use, over whatever the host has.
//
// In the pair's directory the thing is t; a hard-link pair has t2 as well, and
// target is a file that neither side touches.
type matrixKind struct {
	name string
	host func(m *maker)
	view string // shell, see matrixPrelude
}

// matrixPrelude defines what the views' fragments share. away removes whatever is
// there; plain leaves a regular file where it stands, so that what follows copies
// it up, and makes one otherwise; keep leaves a directory too, for what chmod(1)
// and setfacl(1) do to either.
const matrixPrelude = `set -eu
umask 022
trap '[ $? = 0 ] || echo "$pair failed" >&2' EXIT
plainfile() { [ -f t ] && [ ! -L t ]; }
plaindir() { [ -d t ] && [ ! -L t ]; }
away() { rm -rf t t2; }
plain() { plainfile || { away; echo view > t; }; }
keep() { plaindir || plain; }
`

// matrixKinds is the table that all pairs are made from.
var matrixKinds = []matrixKind{
	{"absent", func(*maker) {}, `away`},
	{"regular", func(m *maker) { m.file("t", "host\n", 0o644) }, `plain; echo view > t`},
	{"empty", func(m *maker) { m.file("t", "", 0o640) }, `away; : > t`},
	{"large sparse", func(m *maker) { m.sparse("t", 0, 3) }, `away; truncate -s $large t
for n in 1 5 6; do printf view | dd of=t bs=1 seek=$((n * (large / 8) + 5)) conv=notrunc status=none; done`},
	{"symlink", func(m *maker) { m.do(os.Symlink("target", m.path("t"))) }, `away; ln -s ./target t`},
	{"dangling symlink", func(m *maker) { m.do(os.Symlink("nowhere", m.path("t"))) }, `away; ln -s /no/such/place t`},
	{"directory", func(m *maker) { m.dir("t", 0o755) }, `
if plaindir; then find t -mindepth 1 -delete; else away; mkdir t; fi; chmod 2750 t`},
	{"non-empty directory", func(m *maker) {
		m.dir("t", 0o755)
		m.file("t/a", "host a", 0o644)
		m.dir("t/sub", 0o700)
		m.file("t/sub/b", "host b", 0o600)
	}, `plaindir || away; mkdir -p t/sub t/new; echo view > t/a; echo view > t/new/c; ln -s ../a t/new/l; rm -f t/sub/b`},
	{"opaque directory", func(m *maker) {
		m.dir("t", 0o711)
		m.file("t/o", "host o", 0o644)
		m.file("t/p", "host p", 0o644)
	}, `away; mkdir -m 755 t; echo view > t/o; mkdir t/a`},
	{"fifo", func(m *maker) { m.do(unix.Mkfifo(m.path("t"), 0o600)) }, `away; mkfifo -m 622 t`},
	{"hard-link pair", func(m *maker) {
		m.file("t", "host\n", 0o644)
		m.do(os.Link(m.path("t"), m.path("t2")))
	}, `away; echo view > t; ln t t2`},
	{"running binary", func(m *maker) { m.running("t") }, `away; cp /bin/true t; ./t`},
	{"setuid", func(m *maker) {
		m.file("t", "host\n", 0o755)
		m.do(os.Chown(m.path("t"), 7, 8), unix.Chmod(m.path("t"), 0o4755))
	}, `keep; chown 8:7 t; chmod 6711 t`},
	{"capability", func(m *maker) {
		m.file("t", "host\n", 0o755)
		m.run("setcap", "cap_net_raw=ep", "t")
	}, `plain; setcap cap_net_bind_service=ei t`},
	{"ACL", func(m *maker) {
		m.file("t", "host\n", 0o640)
		m.run("setfacl", "-m", "u:7:rw,g:8:r", "t")
	}, `keep; setfacl -m u:9:rx t`},
	{"default ACL", func(m *maker) {
		m.dir("t", 0o750)
		m.run("setfacl", "-d", "-m", "g:8:rwx", "t")
		m.run("cp", "target", "t/child") // inherits
	}, `plaindir || { away; mkdir t; }; setfacl -d -m u:9:rwx t; setfacl -m u:9:x t; mkdir -p t/child2`},
	{"xattr", func(m *maker) {
		m.file("t", "host\n", 0o644)
		m.run("setfattr", "-n", "user.host", "-v", "h", "t")
		m.run("setfattr", "-n", "user.both", "-v", "h", "t")
	}, `keep; setfattr -n user.view -v v t; setfattr -n user.both -v v t; setfattr -x user.host t 2>/dev/null || :`},
	// On the host a test sets the flag when it is time; inside, nobody can.
	{immutable, func(m *maker) { m.file("t", "host\n", 0o644) }, `plain; echo fixed > t
if chattr +i t 2>/dev/null; then echo 'chattr was not refused'; exit 1; fi`},
}

// maker makes the host's side of one pair; the first error stays.
type maker struct {
	at      string
	large   int64 // size of what is large
	started *[]*exec.Cmd
	err     error
}

func (m *maker) path(name string) string { return filepath.Join(m.at, name) }

func (m *maker) do(errs ...error) { m.err = errors.Join(append(errs, m.err)...) }

func (m *maker) file(name, content string, mode uint32) {
	m.do(os.WriteFile(m.path(name), []byte(content), 0o600), unix.Chmod(m.path(name), mode))
}

func (m *maker) dir(name string, mode uint32) {
	m.do(os.Mkdir(m.path(name), 0o700), unix.Chmod(m.path(name), mode))
}

// sparse makes a large file with islands of data at some of its eighths.
func (m *maker) sparse(name string, islands ...int64) {
	f, err := os.Create(m.path(name))
	if err != nil {
		m.do(err)
		return
	}
	for _, n := range islands {
		_, err := f.WriteAt([]byte("host"), n*(m.large/8))
		m.do(err)
	}
	m.do(f.Truncate(m.large), f.Close())
}

// running makes a program and starts it. Until it ends, its file is busy:
// open(2) for writing is ETXTBSY.
func (m *maker) running(name string) {
	m.do(copyFile("/bin/sleep", m.path(name)))
	cmd := exec.Command(m.path(name), "infinity")
	m.do(cmd.Start())
	*m.started = append(*m.started, cmd)
}

func (m *maker) run(argv ...string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = m.at
	if out, err := cmd.CombinedOutput(); err != nil {
		m.do(fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out))
	}
}

// matrixPair is one kind in the view over one kind on the host.
type matrixPair struct{ view, host matrixKind }

// dir is the name of the pair's directory.
func (p matrixPair) dir() string {
	return strings.ReplaceAll(p.view.name+" on "+p.host.name, " ", "-")
}

// immutable is the one kind that cannot be applied over.
const immutable = "immutable"

// pairsOver returns every kind in a view over the kinds of the host that are asked
// for. Nothing over nothing is no pair: no program can ask for it.
func pairsOver(want func(host string) bool) []matrixPair {
	var all []matrixPair
	for _, host := range matrixKinds {
		for _, view := range matrixKinds {
			if want(host.name) && (host.name != "absent" || view.name != "absent") {
				all = append(all, matrixPair{view, host})
			}
		}
	}
	return all
}

// matrixScript is what one command in the view does to make its side of the
// pairs. A pair that fails ends it with the pair's name.
func matrixScript(base string, large int64, pairs []matrixPair) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%slarge=%d\n", matrixPrelude, large)
	for _, p := range pairs {
		// Not "( … ) || …": that would switch off -e inside.
		fmt.Fprintf(&b, "pair=%s\ncd '%s'/$pair\n( %s\n)\n", p.dir(), base, strings.TrimSpace(p.view.view))
	}
	return b.String()
}
