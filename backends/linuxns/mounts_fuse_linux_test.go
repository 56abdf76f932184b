package linuxns

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/netsandbox/netsandbox/backends"
)

// server is a FUSE filesystem with a file, a directory and a mount point in it.
// It can stop to answer: it takes requests and keeps them.
type server struct {
	mu    sync.Mutex
	stall chan struct{} // open while it does not answer
	*fuse.Server
}

// serve mounts one; nothing is kept in the kernel, so every look needs an answer.
func (m mounted) serve(at string, options fuse.MountOptions) *server {
	m.t.Helper()
	m.mkdir(at)
	s := &server{}
	options.DirectMountStrict, options.FsName, options.Name = true, "test", "test"
	var zero time.Duration
	root := &node{s: s}
	raw := fs.NewNodeFS(root, &fs.Options{MountOptions: options, EntryTimeout: &zero, AttrTimeout: &zero, OnAdd: root.fill})
	var err error
	if s.Server, err = fuse.NewServer(raw, m.path(at), &options); err != nil {
		m.t.Fatal(err)
	}
	go s.Serve()
	m.t.Cleanup(func() {
		s.resume()
		if err := s.Unmount(); err != nil {
			m.t.Errorf("unmount %s: %v", at, err)
		}
	})
	return s
}

// hang makes it keep what it is asked from now on, until the test's cleanup.
func (s *server) hang(t *testing.T) {
	t.Cleanup(s.resume)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stall = make(chan struct{})
}

func (s *server) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stall != nil {
		close(s.stall)
		s.stall = nil
	}
}

func (s *server) answer() {
	s.mu.Lock()
	stall := s.stall
	s.mu.Unlock()
	if stall != nil {
		<-stall
	}
}

type node struct {
	fs.Inode
	s       *server
	content string
}

func (n *node) fill(ctx context.Context) {
	file := n.NewPersistentInode(ctx, &node{s: n.s, content: "host\n"}, fs.StableAttr{Mode: syscall.S_IFREG})
	n.AddChild("f", file, true)
	n.AddChild("dir", n.NewPersistentInode(ctx, &node{s: n.s}, fs.StableAttr{Mode: syscall.S_IFDIR}), true)
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.s.answer()
	out.Mode, out.Size = 0o755, uint64(len(n.content))
	return 0
}

func (n *node) Lookup(_ context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.s.answer()
	c := n.GetChild(name)
	if c == nil {
		return nil, syscall.ENOENT
	}
	out.Mode = c.StableAttr().Mode | 0o755
	return c, 0
}

func (n *node) Opendir(context.Context) syscall.Errno {
	n.s.answer()
	return 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.s.answer()
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n.s.answer()
	c := n.content[min(int(off), len(n.content)):]
	return fuse.ReadResultData([]byte(c[:min(len(c), len(dest))])), 0
}

var (
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeOpendirer = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
)

// A server that answers is shown, and nothing is written through it.
func TestFUSE(t *testing.T) {
	m := newMounted(t)
	m.serve("all", fuse.MountOptions{AllowOther: true})
	m.mount("x", "tmpfs", 0, "", "all/dir")
	write(t, m.path("all/dir/f"), "inner\n")
	e := newEnv(t)
	m.treated(e, "all", "read-only", "fuse.test cannot be layered: map ids of mount")
	m.treated(e, "all/dir", "layer", "")
	for range 2 {
		m.says(e, "read", "cat all/f; ls all; echo x 2>/dev/null > all/f || echo refused", "host\ndir\nf\nrefused\n")
		m.says(e, "below it", "cat all/dir/f", "inner\n")
	}
	m.says(e, "written below it", "echo x > all/dir/f; cat all/dir/f", "x\n")
	m.certain(e, "all/dir/f")
	if o := e.canary(backends.InCandidate, shell("cat "+m.path("all/f")+" "+m.path("all/dir/f"))); o.Output != `host\x0ax\x0a` {
		t.Errorf("candidate: %+v", o)
	}
	if got := read(t, m.path("all/dir/f")); got != "inner\n" {
		t.Errorf("written through: %q", got)
	}
}
