package manifest

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Options says what a picture shows.
type Options struct {
	// Inodes shows inode numbers: two pictures are equal only if they show the
	// very same objects.
	Inodes bool
	// Skip leaves out entries of the root, by name, with all below them.
	Skip func(name string) bool
}

// Read returns the picture of the directory root. Every line begins with a path
// relative to it; an object's own line comes first, then what only some have.
func Read(root string, opt Options) ([]string, error) {
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: root, Err: err}
	}
	w := &walker{opt: opt, names: map[inode][]string{}}
	dir := os.NewFile(uintptr(fd), root)
	defer dir.Close()
	top, err := look(fd, "")
	if err != nil {
		return nil, err
	}
	if err := w.object(top, "."); err != nil {
		return nil, err
	}
	if err := w.below(dir, "."); err != nil {
		return nil, err
	}
	return w.text(), nil
}

// walker collects the objects of a tree in the order of their paths.
type walker struct {
	opt     Options
	objects []object
	names   map[inode][]string // of objects with several
}

type inode struct {
	major, minor uint32
	ino          uint64
}

// object is one path with its lines, save the one about its other names, which
// is known at the end only.
type object struct {
	path  string
	lines []string
	links uint32
	id    inode
}

func (w *walker) below(dir *os.File, path string) error {
	names, err := dir.Readdirnames(-1)
	if err != nil && err != io.EOF {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if path == "." && w.opt.Skip != nil && w.opt.Skip(name) {
			continue
		}
		if err := w.entry(dir, name, path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(dir *os.File, name, path string) error {
	n, err := look(int(dir.Fd()), name)
	if err != nil {
		return err
	}
	if err := w.object(n, path); err != nil {
		return err
	}
	if n.format() != unix.S_IFDIR {
		return nil
	}
	fd, err := n.open(unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	sub := os.NewFile(uintptr(fd), name)
	defer sub.Close()
	return w.below(sub, path)
}

func (w *walker) object(n *node, path string) error {
	lines, err := n.lines(w.opt.Inodes)
	if err != nil {
		return fmt.Errorf("%s: %w", printable(path), err)
	}
	o := object{path: printable(path), lines: lines, id: n.id()}
	if n.format() != unix.S_IFDIR {
		o.links = n.st.Nlink
		w.names[o.id] = append(w.names[o.id], o.path)
	}
	w.objects = append(w.objects, o)
	return nil
}

func (w *walker) text() []string {
	var all []string
	for _, o := range w.objects {
		for _, l := range o.lines {
			all = append(all, o.path+" "+l)
		}
		if o.links > 1 {
			all = append(all, fmt.Sprintf("%s links %d: %s", o.path, o.links, strings.Join(w.names[o.id], " ")))
		}
	}
	return all
}

// printable quotes a path that a line could not hold as it is.
func printable(path string) string {
	if q := strconv.QuoteToASCII(path); strings.Contains(path, " ") || q != `"`+path+`"` {
		return q
	}
	return path
}
