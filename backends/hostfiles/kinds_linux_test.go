package hostfiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/internal/xattr"
)

// kinds are what can stand at "it", and beside it, in a directory. The seed makes
// two of a kind differ.
var kinds = map[string]func(m *maker, seed byte){
	"nothing": func(*maker, byte) {},
	"regular": func(m *maker, seed byte) { m.file("it", strings.Repeat(string(seed), 9000)) },
	"empty":   func(m *maker, _ byte) { m.file("it", "") },
	"sparse": func(m *maker, seed byte) {
		m.file("it", "")
		m.ok(os.Truncate(m.at("it"), 24<<20))
		m.write("it", string(seed), 0)
		m.write("it", strings.Repeat(string(seed), 70000), 8<<20)
		m.write("it", strings.Repeat("\x00", 4096), 16<<20) // data, though zeros
	},
	"hole": func(m *maker, seed byte) { m.file("it", ""); m.ok(os.Truncate(m.at("it"), 8<<20+int64(seed))) },
	"symlink": func(m *maker, seed byte) {
		m.file("to"+string(seed), "t")
		m.ok(os.Symlink("to"+string(seed), m.at("it")))
	},
	"dangling":  func(m *maker, seed byte) { m.ok(os.Symlink("/nowhere/"+string(seed), m.at("it"))) },
	"directory": func(m *maker, seed byte) { m.mkdir("it", 0o750+uint32(seed&7)) },
	"full directory": func(m *maker, seed byte) {
		m.mkdir("it", 0o2755)
		m.file("it/f"+string(seed), "f")
		m.mkdir("it/sub", 0o700)
		m.ok(os.Symlink("../f", m.at("it/sub/l")), unix.Mkfifo(m.at("it/sub/p"), 0o620))
		m.file("it/sub/same", string(seed))
		m.ok(os.Link(m.at("it/sub/same"), m.at("outside")))
		m.set("it/sub", xattr.DefaultACL, acl(seed))
		m.set("it", xattr.ACL, acl(seed))
	},
	"fifo": func(m *maker, seed byte) {
		m.ok(unix.Mkfifo(m.at("it"), 0o600), unix.Chmod(m.at("it"), 0o640+uint32(seed&7)))
	},
	"pair": func(m *maker, seed byte) {
		m.file("it", "one of two "+string(seed))
		m.ok(os.Link(m.at("it"), m.at("twin")))
	},
	"capability": func(m *maker, seed byte) { m.file("it", "run"); m.set("it", xattr.Capability, capability(seed)) },
	"acl":        func(m *maker, seed byte) { m.file("it", "listed"); m.set("it", xattr.ACL, acl(seed)) },
	"attribute": func(m *maker, seed byte) {
		m.file("it", "noted")
		m.set("it", "user.note=%d\n", []byte{0, seed, '='})
		m.set("it", "trusted.note", []byte{seed})
	},
	"setuid": func(m *maker, seed byte) {
		m.file("it", "run")
		m.ok(os.Lchown(m.at("it"), int(seed), 7), unix.Chmod(m.at("it"), 0o6755))
	},
}

// acl is an access control list of one user more than a mode has: version 2,
// then tag, permissions and id of each entry (linux/posix_acl_xattr.h).
func acl(seed byte) []byte {
	return []byte{
		2, 0, 0, 0,
		1, 0, 7, 0, 255, 255, 255, 255, // user::rwx
		2, 0, seed & 7, 0, seed, 0, 0, 0, // user:seed
		4, 0, 5, 0, 255, 255, 255, 255, // group::r-x
		16, 0, 7, 0, 255, 255, 255, 255, // mask::rwx
		32, 0, 1, 0, 255, 255, 255, 255, // other::--x
	}
}

func capability(seed byte) []byte {
	return []byte{1, 0, 0, 2, 0, 16, 0, seed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
}

// maker makes kinds in a directory.
type maker struct {
	t   testing.TB
	dir string
}

func (m *maker) at(p string) string { return filepath.Join(m.dir, p) }

func (m *maker) ok(errs ...error) {
	m.t.Helper()
	for _, err := range errs {
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

func (m *maker) file(p, content string) {
	m.t.Helper()
	m.ok(os.WriteFile(m.at(p), []byte(content), 0o644), os.Chmod(m.at(p), 0o644))
}

func (m *maker) mkdir(p string, mode uint32) {
	m.t.Helper()
	m.ok(os.Mkdir(m.at(p), 0o700), unix.Chmod(m.at(p), mode))
}

func (m *maker) write(p, content string, off int64) {
	m.t.Helper()
	f, err := os.OpenFile(m.at(p), os.O_WRONLY, 0)
	m.ok(err)
	_, err = f.WriteAt([]byte(content), off)
	m.ok(err, f.Close())
}

func (m *maker) set(p, name string, value []byte) {
	m.t.Helper()
	m.ok(unix.Lsetxattr(m.at(p), name, value, 0))
}
