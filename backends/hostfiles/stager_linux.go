package hostfiles

import (
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
)

// stager makes the wanted objects of one Stage.
type stager struct {
	*tree
	wanted backends.Wanted
	tops   map[string]change.Path
	labels map[change.Path]map[string][]byte // of new objects, by the target's parent
	dir    int                               // the last directory made by us that was filled
	at     string
}

func newStager(t *tree, tops map[string]change.Path) *stager {
	return &stager{tree: t, tops: tops, labels: map[change.Path]map[string][]byte{}}
}

// where returns the directory and the name under which s is staged. That
// directory stays the stager's.
func (g *stager) where(s backends.Step) (int, string, error) {
	hidden, err := g.place(s.Place.Dir)
	if err != nil || s.Place.Within == "" {
		return hidden, s.Place.Name, err
	}
	up, base := split(change.Path("/" + inside(s, g.tops[s.Place.Within])))
	key := string(s.Place.Dir + up)
	if g.at == key {
		return g.dir, base, nil
	}
	fd, err := openBelow(hidden, string(up[1:]), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, "", &os.PathError{Op: "open", Path: change.Escape(key), Err: err}
	}
	g.leave()
	g.dir, g.at = fd, key
	return fd, base, nil
}

func (g *stager) leave() {
	if g.at != "" {
		unix.Close(g.dir)
	}
	g.at = ""
}

// stage makes one object; content is a regular file's.
func (g *stager) stage(s *backends.Step, content io.Reader) error {
	dir, name, err := g.where(*s)
	if err != nil {
		return err
	}
	if err := g.locate(s, dir); err != nil {
		return err
	}
	m := material{content: content}
	if m.inherited, err = g.inherited(*s); err != nil {
		return err
	}
	if f, ok := content.(*os.File); ok && s.Change.New.Sparse {
		if m.data, err = dataMapOf(f); err != nil {
			return err
		}
	}
	n, err := create(dir, name, s.Change.New, m, g.buf)
	if err != nil {
		return err
	}
	s.Place.Staged = n.identity()
	return nil
}

// locate records a carried step's directory, which is one of ours.
func (g *stager) locate(s *backends.Step, dir int) error {
	if s.Place.Within == "" {
		return nil
	}
	up, err := stat(dir, "")
	if err == nil {
		s.Place.Parent = up.identity()
	}
	return err
}

// dataMapOf is dataMap for a file that is about to be read from its start.
func dataMapOf(f *os.File) ([]extent, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := dataMap(int(f.Fd()), fi.Size())
	if err != nil {
		return nil, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return data, err
}

// inherited returns what the new object gets beside what is planned: of the old
// one if that is of the same type, else of the directory it will be in.
func (g *stager) inherited(s backends.Step) (map[string][]byte, error) {
	old, want := s.Change.Old, s.Change.New
	if old != nil && old.Type == want.Type {
		dir, base, err := g.parent(s.Change.Path)
		if err != nil {
			return nil, err
		}
		return inherited(dir, base)
	}
	at := s.Change.Path // whose parent is on the host: for a carried step its carrier's
	if s.Place.Within != "" {
		at = g.tops[s.Place.Within]
	}
	up, _ := split(at)
	if m, ok := g.labels[up]; ok {
		return m, nil
	}
	dir, _, err := g.parent(at)
	if err != nil {
		return nil, err
	}
	m, err := labels(dir)
	g.labels[up] = m
	return m, err
}

// finishDirs gives new directories their metadata, now that they are full.
func (g *stager) finishDirs(steps []backends.Step) error {
	for _, s := range slices.Backward(steps) {
		want := s.Change.New
		if want == nil || s.Place.Name == "" || want.Type != change.Directory {
			continue
		}
		if err := g.finishDir(s); err != nil {
			return fmt.Errorf("%s: %w", s.Change.Path, err)
		}
	}
	return nil
}

func (g *stager) finishDir(s backends.Step) error {
	dir, name, err := g.where(s)
	if err != nil {
		return err
	}
	more, err := g.inherited(s)
	if err != nil {
		return err
	}
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	return dress(fd, s.Change.New, more)
}
