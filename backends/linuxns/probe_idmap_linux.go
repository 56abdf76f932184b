package linuxns

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

// idmapFindings asks each filesystem that would become a layer of a view
// whether its ids can be mapped, and names what no view shows. Which those are is decided from the mount table
// alone, and one whose server could be dead is not asked.
func idmapFindings(ctx context.Context, stateRoot string) []backends.Finding {
	plan, err := layers(stateRoot)
	if err != nil {
		return []backends.Finding{{
			Name: "idmap", Status: "missing", Detail: err.Error(),
			Fix: "run on a host whose root is a mount of a local filesystem",
		}}
	}
	var found []backends.Finding
	seen := map[string]bool{}
	for _, e := range plan.Entries {
		if e.Treatment == mountplan.Excluded && e.Cover {
			found = append(found, backends.Finding{
				Name: "mount " + change.Escape(e.Point), Status: "degraded", Detail: e.FS + ": " + e.Reason,
				Fix: "it is not in views; what is mounted there before a view is built is",
			})
		}
		if e.Treatment != mountplan.Layer || seen[e.Dev] {
			continue
		}
		seen[e.Dev] = true
		f := backends.Finding{Name: "idmap " + change.Escape(e.Point), Status: "ok", Detail: e.FS}
		err := errors.New("it depends on another machine or process and was not asked")
		if !e.Slow {
			err = limited(ctx, func(context.Context) error { return tryIdmap(e.Point) })
		}
		if err != nil {
			c := check{fix: "it is read-only in views; --hide leaves it out"}
			if e.Point == "/" {
				c.fix = "a root on ext4, xfs or btrfs and Linux 5.19 or later" + weaker
			}
			f.Status, f.Detail, f.Fix = "degraded", e.FS+": "+err.Error(), c.advice(err)
		}
		found = append(found, f)
	}
	return found
}

func layers(stateRoot string) (mountplan.Plan, error) {
	table, err := mountplan.Read()
	if err != nil {
		return mountplan.Plan{}, err
	}
	return mountplan.Make(table, stateRoot, nil, nil)
}

// tryIdmap maps the ids of a detached clone, which is gone with its descriptor.
func tryIdmap(path string) error {
	user, _, err := rawfork.Namespaces(harden.Shift, harden.Ids, false)
	if err != nil {
		return err
	}
	defer unix.Close(user)
	tree, err := mounts.Clone(unix.AT_FDCWD, path, false)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return mounts.Idmap(tree, user)
}

// cgroup2Mount returns where the unified hierarchy is mounted.
func cgroup2Mount() (string, error) {
	found, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	if len(found) == 0 {
		return "", errors.New("cgroup2 is not mounted")
	}
	return found[0].Mountpoint, nil
}
