package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/client"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/cgroup"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/erase"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/holder"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// The kinds of resource that an environment has on the host.
const (
	kindCgroup = "cgroup"
	kindLanes  = "lanes" // rules and routes, by the file in which they are recorded
)

// Backend makes environments in namespaces of the running kernel.
type Backend struct{ Doctor }

// New returns the backend. It does no I/O.
func New() *Backend { return &Backend{} }

// Name implements [backends.Backend].
func (*Backend) Name() string { return "linux" }

// Open implements [backends.Backend].
func (*Backend) Open(spec backends.Spec) backends.View { return &View{spec: spec} }

// Exec implements [backends.Executor].
func (*Backend) Exec(ctx context.Context, spec backends.Spec, r backends.ExecRequest) (int, error) {
	return client.Exec(ctx, spec, r)
}

// Connections implements [backends.Connector].
func (*Backend) Connections(ctx context.Context) ([]backends.Connection, error) {
	return Connections{}.Connections(ctx)
}

// Create implements [backends.Backend].
func (b *Backend) Create(ctx context.Context, spec backends.Spec) (_ backends.Created, err error) {
	if os.Geteuid() != 0 {
		return backends.Created{}, fmt.Errorf("%w: views need root to mount overlays", backends.ErrUnavailable)
	}
	if err := usable(spec.StateRoot); err != nil {
		return backends.Created{}, err
	}
	for _, d := range []string{envdir.Layers, envdir.Files, envdir.Build} {
		if err := os.Mkdir(filepath.Join(spec.Dir, d), 0o700); err != nil {
			return backends.Created{}, fmt.Errorf("lay out environment: %w", err)
		}
	}
	v := &View{spec: spec}
	defer func() {
		if err != nil {
			// The directory itself is the caller's, who made it.
			err = errors.Join(err, v.end(context.WithoutCancel(ctx)), clearDir(spec.Dir))
		}
	}()
	r, err := v.call(ctx, true, wire.Op{Name: wire.OpBuild})
	if err != nil {
		return backends.Created{}, fmt.Errorf("create view: %w", err)
	}
	return backends.Created{
		Mode: r.Status.Mode, Mounts: r.Mounts, Notes: r.Notes,
		Resources: []backends.Resource{
			{Kind: kindCgroup, Name: cgroup.Tag + "/" + spec.ID},
			// None yet: they come with the first flow that takes a way of its own.
			{Kind: kindLanes, Name: envdir.Dir(spec.Dir).Path(envdir.Lanes)},
		},
	}, nil
}

// Sweep implements [backends.Backend]. Everything that a view is ends with its
// processes, and those are found by their group. Its lanes are found by their
// numbers: those that no living process claims are removed, whoever's they were.
func (b *Backend) Sweep(_ context.Context, r backends.Resource) error {
	if r.Kind == kindLanes {
		return sweepLanes()
	}
	if r.Kind != kindCgroup {
		return fmt.Errorf("sweep %s %s: %w", r.Kind, r.Name, errors.ErrUnsupported)
	}
	tag, id := filepath.Split(r.Name)
	if filepath.Clean(tag) != cgroup.Tag || id == "" {
		return fmt.Errorf("sweep cgroup %q: not one of ours", r.Name)
	}
	g, err := cgroup.Open(id)
	if err != nil {
		return err
	}
	return holder.End(g, envdir.Holder{})
}

// usable says whether a directory can hold the upper layers of overlays.
func usable(stateRoot string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(stateRoot, &fs); err != nil {
		return fmt.Errorf("look at state directory: %w", err)
	}
	refused := map[int64]string{
		unix.OVERLAYFS_SUPER_MAGIC: "an overlay", unix.NFS_SUPER_MAGIC: "NFS",
		unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
		unix.FUSE_SUPER_MAGIC: "FUSE", unix.V9FS_MAGIC: "9p", unix.CEPH_SUPER_MAGIC: "Ceph",
		unix.MSDOS_SUPER_MAGIC: "FAT",
	}
	if name, bad := refused[fs.Type]; bad {
		return fmt.Errorf("%w: the state directory %s is on %s, which cannot hold the upper layer of an overlay: name a directory on ext4, xfs, btrfs or tmpfs with --state-dir",
			backends.ErrUnavailable, stateRoot, name)
	}
	return nil
}

// clearDir removes what Create made in an environment's directory.
func clearDir(dir string) error {
	var errs []error
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("clear environment: %w", err)
	}
	ours := []string{
		envdir.Layers, envdir.Files, envdir.Build, envdir.HolderLock, envdir.StartLock,
		envdir.ExecSocket, envdir.OpSocket, envdir.Log, envdir.Record, envdir.StampFile,
		envdir.Resolver, envdir.TwinLost, envdir.Lanes,
	}
	for _, e := range entries {
		if slices.Contains(ours, e.Name()) {
			errs = append(errs, erase.Tree(dir, e.Name()))
		}
	}
	return errors.Join(errs...)
}

var (
	_ backends.Backend   = (*Backend)(nil)
	_ backends.Executor  = (*Backend)(nil)
	_ backends.Prober    = (*Backend)(nil)
	_ backends.Connector = (*Backend)(nil)
)
