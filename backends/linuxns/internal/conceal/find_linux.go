package conceal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/internal/regular"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
)

// Found is what a view that is built now covers, sorted by path.
type Found struct {
	Covers []backends.Cover
	// Notes say what should be covered and is not, or not under every name.
	Notes []string
}

// Paths lists the covered paths.
func (f Found) Paths() []string {
	ps := make([]string, len(f.Covers))
	for i, c := range f.Covers {
		ps[i] = c.Path
	}
	return ps
}

// Find looks at the host. Mounts are its mount table.
func Find(hide []string, secrets *backends.Secrets, mounts []mountplan.Mount) Found {
	f := finder{mounts: mounts}
	for _, p := range hide {
		f.named(path.Clean(p))
	}
	if secrets != nil {
		f.secrets(*secrets)
	}
	slices.SortStableFunc(f.Covers, func(a, b backends.Cover) int { return strings.Compare(a.Path, b.Path) })
	f.Covers = slices.CompactFunc(f.Covers, func(a, b backends.Cover) bool { return a.Path == b.Path })
	slices.Sort(f.Notes)
	f.Notes = slices.Compact(f.Notes)
	return f.Found
}

type finder struct {
	Found
	mounts []mountplan.Mount
	show   []string
}

// named covers what the owner named. The name may be a symbolic link, and what it
// leads to is meant; where nothing is yet, the name itself is kept for later.
func (f *finder) named(p string) {
	if real, err := f.resolve(p); err == nil {
		p = real
	}
	f.cover(p, backends.Hidden, "--hide")
}

func (f *finder) cover(p, how, why string) {
	f.Covers = append(f.Covers, backends.Cover{Path: p, How: how, Why: why})
	var st syscall.Stat_t
	if _, waits := mountplan.Waits(f.mounts, p); waits || syscall.Lstat(p, &st) != nil {
		return
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Nlink > 1 {
		f.note("%s has %d names on the host; only this one is hidden", change.Escape(p), st.Nlink)
	}
}

func (f *finder) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

// secrets follows the policy.
func (f *finder) secrets(s backends.Secrets) {
	for _, p := range s.Show {
		f.show = append(f.show, path.Clean(p))
	}
	homes := f.homes(s.Owners)
	for _, r := range rules() {
		if !r.home {
			f.system(r)
			continue
		}
		for _, h := range homes {
			f.personal(r, h)
		}
	}
}

// system follows a rule about a path of the machine. What lies above it is
// root's, so links on the way are too.
func (f *finder) system(r rule) {
	if m, waits := mountplan.Waits(f.mounts, r.at); waits {
		f.note("%s is not hidden: it lies on %s (%s), which may not answer", r.at, change.Escape(m.Point), m.FS)
		return
	}
	found, err := filepath.Glob(r.at)
	if err != nil {
		return // the pattern is one that a test has parsed
	}
	for _, p := range found {
		if real, err := f.resolve(p); err == nil && !f.shown(p) && !f.shown(real) {
			f.cover(real, r.how, why(r))
		}
	}
}

// personal follows a rule about a path in a home directory. Its owner decides
// what stands there: a link to what is not theirs hides nothing, or one user
// could take /etc from the view of another.
func (f *finder) personal(r rule, h home) {
	p := path.Join(h.dir, r.at)
	real, err := f.resolve(p)
	if errors.Is(err, errWaits) {
		f.note("%s is not hidden: it leads to a filesystem that may not answer", change.Escape(p))
	}
	if err != nil || f.shown(p) || f.shown(real) {
		return
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(real, &st); err != nil || real != p && st.Uid != h.uid {
		return
	}
	f.cover(real, r.how, why(r))
}

// errWaits: a path leads where looking could mean waiting.
var errWaits = errors.New("a filesystem on the way may not answer")

// resolve follows the symbolic links of a path as far as it can be looked at
// without waiting.
func (f *finder) resolve(p string) (string, error) {
	at, todo, links := "/", strings.Split(p, "/"), 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == "" || name == "." {
			continue
		}
		next := path.Join(at, name)
		if _, waits := mountplan.Waits(f.mounts, next); waits {
			return "", errWaits
		}
		fi, err := os.Lstat(next)
		if err != nil {
			return "", err
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > 40 {
			return "", &fs.PathError{Op: "resolve", Path: p, Err: syscall.ELOOP}
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if path.IsAbs(to) {
			at = "/"
		}
		todo = append(strings.Split(to, "/"), todo...)
	}
	return at, nil
}

func why(r rule) string {
	switch {
	case r.home:
		return "of another user"
	case r.how == backends.Redacted:
		return "password hashes"
	}
	return "of the machine"
}

// shown reports that a path was asked to stay visible, itself or as a part of
// what was.
func (f *finder) shown(p string) bool {
	return slices.ContainsFunc(f.show, func(s string) bool { return p == s || s == "/" || strings.HasPrefix(p, s+"/") })
}

// nobody is no user: chown(2) takes it for "leave it".
const nobody = ^uint32(0)

// home is the home directory of a user who does not own the environment.
type home struct {
	dir string
	uid uint32
}

// homes lists the home directories of everybody but the owners: those that
// passwd(5) names, and those below /home, where directory services put theirs.
func (f *finder) homes(owners []uint32) []home {
	var all []home
	own := map[string]bool{}
	for _, u := range users() {
		if slices.Contains(owners, u.uid) {
			own[u.dir] = true
		}
		all = append(all, u)
	}
	all = append(all, f.below("/home")...)
	var out []home
	seen := map[string]bool{}
	for _, h := range all {
		if h.dir == "/" || own[h.dir] || seen[h.dir] || slices.Contains(owners, h.uid) || viewsOwn(h.dir) {
			continue
		}
		seen[h.dir] = true
		if m, waits := mountplan.Waits(f.mounts, h.dir); waits {
			f.note("secrets below %s are not hidden: %s may not answer", change.Escape(m.Point), m.FS)
			continue
		}
		if real, err := f.resolve(h.dir); err == nil && !own[real] && real != "/" {
			out = append(out, home{real, h.uid})
		}
	}
	return out
}

// viewsOwn reports a path of which every view has its own.
func viewsOwn(p string) bool {
	return slices.ContainsFunc([]string{"/dev", "/proc", "/run", "/sys"}, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
}

func (f *finder) below(dir string) []home {
	if _, waits := mountplan.Waits(f.mounts, dir); waits {
		return []home{{dir: dir, uid: nobody}} // for the note
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []home
	for _, e := range list {
		p := path.Join(dir, e.Name())
		var st syscall.Stat_t
		if _, waits := mountplan.Waits(f.mounts, p); waits {
			out = append(out, home{dir: p, uid: nobody})
		} else if syscall.Lstat(p, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			out = append(out, home{p, st.Uid})
		}
	}
	return out
}

// users reads passwd(5) of the host.
func users() []home {
	b, err := readSmall("/etc/passwd")
	if err != nil {
		return nil
	}
	var out []home
	for line := range strings.Lines(string(b)) {
		w := strings.Split(strings.TrimSpace(line), ":")
		var uid uint32
		if len(w) < 6 || !path.IsAbs(w[5]) {
			continue
		}
		if _, err := fmt.Sscanf(w[2], "%d", &uid); err != nil {
			continue
		}
		out = append(out, home{path.Clean(w[5]), uid})
	}
	return out
}

// Content returns the redacted content of a file with its attributes. What is no
// small regular file has none, and is hidden instead.
func Content(p string) (content []byte, st syscall.Stat_t, err error) {
	if err = syscall.Lstat(p, &st); err != nil {
		return nil, st, err
	}
	b, err := readSmall(p)
	if err != nil {
		return nil, st, err
	}
	return Redact(b), st, nil
}

const small = 4 << 20

func readSmall(p string) ([]byte, error) {
	f, err := regular.Open(p, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, small+1))
	if err == nil && len(b) > small {
		err = &fs.PathError{Op: "read", Path: p, Err: syscall.EFBIG}
	}
	return b, err
}
