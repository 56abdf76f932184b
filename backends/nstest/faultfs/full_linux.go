package faultfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The name of what takes all the room. It begins like what a transaction hides,
// so that a manifest which leaves that out leaves this out too.
const ballast = ".netsandbox-ballast"

// Fill takes every free block of dir's filesystem, those kept for root too. The
// returned function gives them back.
func Fill(t testing.TB, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, ballast)
	if err := fill(name); err != nil {
		t.Fatalf("faultfs: fill %s: %v", dir, err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Fatalf("faultfs: %v", err)
		}
	}
}

func fill(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var end int64
	for chunk := int64(1 << 30); chunk >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, end, chunk); {
		case err == nil:
			end += chunk
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
			chunk /= 2
		case !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("fallocate", err)
		}
	}
	// What is written late finds out late: an allocation that was put off counts
	// as free until then.
	if err := f.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil
}

// FillInodes takes every free inode of dir's filesystem, which must have a fixed
// number of them. The returned function gives them back.
func FillInodes(t testing.TB, dir string) (free func()) {
	t.Helper()
	at := filepath.Join(dir, ballast)
	err := os.Mkdir(at, 0o700)
	for n := 0; err == nil; n++ {
		err = unix.Mknod(filepath.Join(at, fmt.Sprint(n)), unix.S_IFREG|0o600, 0)
	}
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		t.Fatalf("faultfs: fill %s: %v", dir, err)
	}
	return func() {
		t.Helper()
		if err := os.RemoveAll(at); err != nil {
			t.Fatalf("faultfs: %v", err)
		}
	}
}

// OverQuota puts a limit on all files of a btrfs that they have reached already,
// so that everything which takes more is refused with EDQUOT: the quotas of ext4
// and xfs do not hold root. The returned function lifts it. It needs btrfs(8).
func (f *FS) OverQuota() (lift func()) {
	f.t.Helper()
	run := func(args ...string) {
		f.t.Helper()
		if out, err := exec.Command("btrfs", append(args, f.Dir)...).CombinedOutput(); err != nil {
			f.t.Fatalf("faultfs: btrfs %v: %v: %s", args, err, out)
		}
	}
	run("quota", "enable")
	run("quota", "rescan", "-w")
	run("qgroup", "limit", "1", "0/5")
	return func() { f.t.Helper(); run("quota", "disable") }
}
