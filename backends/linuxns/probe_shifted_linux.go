package linuxns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/harden"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/rawfork"
)

const weaker = "; without it views run in the weaker mode \"caps\", in which mounts, network namespaces and services cannot be tried"

// shiftedChecks are what the default mode stands on besides the idmaps of the
// host's filesystems.
var shiftedChecks = []check{
	{
		name: "joined namespaces", without: "degraded",
		fix: "raise user.max_user_namespaces and user.max_net_namespaces" + weaker,
		try: tryJoin,
	},
	{
		name: "shifted layer", without: "degraded",
		fix: "Linux 5.19 or later and a state directory on ext4, xfs or btrfs" + weaker,
		try: tryShiftedLayer,
	},
}

// tryJoin starts a PID 1 as a view has it, up to where it would wait for its
// mounts, and closes the gate before it.
func tryJoin(context.Context, string) (string, error) {
	user, net, err := rawfork.Namespaces(harden.Shift, harden.Ids, true)
	if err != nil {
		return "", err
	}
	defer unix.Close(user)
	defer unix.Close(net)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(null)
	status, tell, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer status.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		tell.Close()
		return "", err
	}
	in := rawfork.Init{
		Cgroup: -1, User: user, Net: net, Exe: null, Argv: []string{"netsandbox-doctor"},
		Socket: null, Status: int(tell.Fd()), Gate: int(gate.Fd()),
	}
	pid, err := in.Start()
	tell.Close()
	gate.Close()
	if err == nil {
		_, err = status.Read(make([]byte, 1))
	}
	open.Close() // nobody will let it through
	if pid > 0 {
		var ws syscall.WaitStatus
		_, werr := syscall.Wait4(pid, &ws, 0, nil)
		err = errors.Join(err, werr)
	}
	return "a process can be born into them", err
}

// tryShiftedLayer writes through an overlay of idmapped layers as the root of a
// view would, and looks at what arrived on the disk.
func tryShiftedLayer(_ context.Context, stateRoot string) (string, error) {
	parent, err := existing(stateRoot)
	if err != nil {
		return "", err
	}
	user, _, err := rawfork.Namespaces(harden.Shift, harden.Ids, false)
	if err != nil {
		return "", err
	}
	defer unix.Close(user)
	return inScratch(parent, func(dir string) (string, error) {
		for _, d := range []string{"lower", "layer", "layer/upper", "layer/work", "l", "u", "merged"} {
			if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
				return "", err
			}
		}
		for from, to := range map[string]string{"lower": "l", "layer": "u"} {
			to = filepath.Join(dir, to)
			if err := attachMapped(filepath.Join(dir, from), to, user); err != nil {
				return "", err
			}
			defer unix.Unmount(to, unix.MNT_DETACH)
		}
		return "files written in it have plain owners", mounts.As(harden.Shift, func() error { return writeShifted(dir) })
	})
}

func attachMapped(from, to string, user int) error {
	tree, err := mounts.CloneDir(from)
	if err != nil {
		return err
	}
	if err := mounts.Idmap(tree, user); err != nil {
		unix.Close(tree)
		return err
	}
	place, err := unix.Open(to, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(tree)
		return err
	}
	defer unix.Close(place)
	return mounts.Attach(tree, place)
}

func writeShifted(dir string) (err error) {
	merged := filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/l,upperdir=%[1]s/u/upper,workdir=%[1]s/u/work,"+
		"redirect_dir=nofollow,metacopy=off,index=off,xino=auto", dir)
	if err := unix.Mount("overlay", merged, "overlay", unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(merged, 0)) }()
	file := filepath.Join(merged, "file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		return fmt.Errorf("write through overlay: %w", err)
	}
	if err := os.Chown(file, harden.Shift+33, harden.Shift+42); err != nil {
		return fmt.Errorf("change owner through overlay: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, "layer", "upper", "file"), &st); err != nil {
		return fmt.Errorf("look into the upper: %w", err)
	}
	if st.Uid != 33 || st.Gid != 42 {
		return fmt.Errorf("33:42 arrived in the upper as %d:%d", st.Uid, st.Gid)
	}
	return nil
}
