package faultfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/faultfs"
)

func TestMain(m *testing.M) {
	faultfs.Main()
	nstest.Main(m)
}

// each runs f on a fresh filesystem of every kind.
func each(t *testing.T, f func(t *testing.T, fs *faultfs.FS)) {
	for _, k := range []faultfs.Kind{faultfs.Ext4, faultfs.XFS, faultfs.Btrfs} {
		t.Run(k.Name, func(t *testing.T) {
			nstest.NewMount(t, nstest.Tool(k.Mkfs[0]))
			f(t, faultfs.New(t, k))
		})
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWritesFailUntilHealed(t *testing.T) {
	each(t, func(t *testing.T, fs *faultfs.FS) {
		name := filepath.Join(fs.Dir, "f")
		write(t, name, "before")
		fs.Fail(faultfs.Write)
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString("after!"); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); !errors.Is(err, unix.EIO) {
			t.Errorf("sync: %v, want EIO", err)
		}
		if fs.Failed() == 0 {
			t.Error("no request failed")
		}
		f.Close()
		fs.Remount()
		if got := content(t, name); got != "before" {
			t.Errorf("after remount: %q", got)
		}
		write(t, name, "healed")
	})
}

// Ext4 reports a failed write-back once and forgets it: whoever ignores it, or
// asks again, is told that all is well.
func TestExt4ReportsAFailedSyncOnce(t *testing.T) {
	nstest.NewMount(t, nstest.Tool("mkfs.ext4"))
	fs := faultfs.New(t, faultfs.Ext4)
	name := filepath.Join(fs.Dir, "f")
	write(t, name, "before")
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("after!"); err != nil {
		t.Fatal(err)
	}
	fs.FailOnce(faultfs.Write, 0, 1)
	if err := f.Sync(); !errors.Is(err, unix.EIO) {
		t.Errorf("first sync: %v, want EIO", err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("second sync: %v", err)
	}
	if got := content(t, name); got != "after!" {
		t.Errorf("in memory: %q", got)
	}
	f.Close()
	fs.Remount()
	if got := content(t, name); got != "before" {
		t.Errorf("on disk: %q", got)
	}
}

func TestFlushAloneFails(t *testing.T) {
	each(t, func(t *testing.T, fs *faultfs.FS) {
		name := filepath.Join(fs.Dir, "f")
		flushes := fs.Count(faultfs.Flush)
		write(t, name, "before")
		if fs.Count(faultfs.Flush) == flushes {
			t.Error("a sync flushed nothing")
		}
		fs.Fail(faultfs.Flush)
		f, err := os.OpenFile(filepath.Join(fs.Dir, "g"), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err == nil {
			t.Error("sync succeeded")
		}
		f.Close()
		fs.Remount()
		if got := content(t, name); got != "before" {
			t.Errorf("after remount: %q", got)
		}
	})
}

func TestReadsFail(t *testing.T) {
	each(t, func(t *testing.T, fs *faultfs.FS) {
		name := filepath.Join(fs.Dir, "f")
		write(t, name, string(make([]byte, 64<<10)))
		fs.Remount() // out of the cache
		fs.Fail(faultfs.Read)
		if _, err := os.ReadFile(name); !errors.Is(err, unix.EIO) {
			t.Errorf("read: %v, want EIO", err)
		}
		fs.Heal()
		if got := content(t, name); len(got) != 64<<10 {
			t.Errorf("healed: %d bytes", len(got))
		}
	})
}

func TestPowerCutLosesWhatWasNotSynced(t *testing.T) {
	each(t, func(t *testing.T, fs *faultfs.FS) {
		kept, lost := filepath.Join(fs.Dir, "kept"), filepath.Join(fs.Dir, "lost")
		write(t, kept, "synced")
		if err := os.WriteFile(lost, []byte("not synced"), 0o600); err != nil {
			t.Fatal(err)
		}
		fs.Cut()
		fs.Remount()
		if got := content(t, kept); got != "synced" {
			t.Errorf("synced file: %q", got)
		}
		if _, err := os.Lstat(lost); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("file that was not synced: %v", err)
		}
	})
}

func TestFilledToTheLastBlock(t *testing.T) {
	each(t, func(t *testing.T, fs *faultfs.FS) {
		free := faultfs.Fill(t, fs.Dir)
		if err := os.WriteFile(filepath.Join(fs.Dir, "f"), make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("write to a full disk: %v", err)
		}
		free()
		write(t, filepath.Join(fs.Dir, "g"), "room again")
	})
}

func TestFilledToTheLastInode(t *testing.T) {
	nstest.NewMount(t, nstest.Tool("mkfs.ext4"))
	fs := faultfs.New(t, faultfs.Ext4)
	free := faultfs.FillInodes(t, fs.Dir)
	if err := os.WriteFile(filepath.Join(fs.Dir, "f"), nil, 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("new file without a free inode: %v", err)
	}
	free()
	write(t, filepath.Join(fs.Dir, "g"), "room again")
}

func TestReadOnlyUntilRemounted(t *testing.T) {
	nstest.NewMount(t, nstest.Tool("mkfs.ext4"))
	fs := faultfs.New(t, faultfs.Ext4)
	name := filepath.Join(fs.Dir, "f")
	for _, open := range []bool{false, true} {
		write(t, name, "before")
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !open {
			f.Close()
		}
		fs.ReadOnly()
		if err := os.WriteFile(filepath.Join(fs.Dir, "g"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("open file %v: new file: %v, want EROFS", open, err)
		}
		if open {
			if _, err := f.WriteString("after!"); !errors.Is(err, unix.EROFS) {
				t.Errorf("write to the open file: %v, want EROFS", err)
			}
			f.Close()
		}
		fs.Remount()
		write(t, name, "again!")
	}
}

func TestOverQuota(t *testing.T) {
	nstest.NewMount(t, nstest.Tool("mkfs.btrfs"), nstest.Tool("btrfs"))
	fs := faultfs.New(t, faultfs.Btrfs)
	write(t, filepath.Join(fs.Dir, "f"), "before")
	lift := fs.OverQuota()
	if err := os.WriteFile(filepath.Join(fs.Dir, "g"), make([]byte, 64<<10), 0o600); !errors.Is(err, unix.EDQUOT) {
		t.Errorf("write over the quota: %v, want EDQUOT", err)
	}
	lift()
	write(t, filepath.Join(fs.Dir, "h"), "room again")
}
