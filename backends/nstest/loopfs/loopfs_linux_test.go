package loopfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

func TestMake(t *testing.T) {
	tree := t.TempDir()
	if err := os.WriteFile(filepath.Join(tree, "f"), []byte("here\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for k, magic := range map[Kind]int64{
		Ext4: unix.EXT4_SUPER_MAGIC, XFS: unix.XFS_SUPER_MAGIC,
		Btrfs: unix.BTRFS_SUPER_MAGIC, Squashfs: unix.SQUASHFS_MAGIC,
	} {
		t.Run(string(k), func(t *testing.T) {
			nstest.NewMount(t)
			dir := Make(t, k, 0, Options{Tree: tree, Flags: unix.MS_NOEXEC})
			var fs unix.Statfs_t
			if err := unix.Statfs(dir, &fs); err != nil {
				t.Fatal(err)
			}
			if fs.Type != magic || fs.Flags&unix.ST_NOEXEC == 0 {
				t.Errorf("magic %x, flags %x", fs.Type, fs.Flags)
			}
			err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)
			if ro := k == Squashfs; (err != nil) != ro {
				t.Errorf("write: %v", err)
			}
			if k == Squashfs {
				if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != "here\n" {
					t.Errorf("%q, %v", b, err)
				}
			}
		})
	}
}

func TestImageMountedAgain(t *testing.T) {
	nstest.NewMount(t)
	o := Options{Mkfs: []string{"-b", "1024"}, Data: "nodelalloc"}
	image := Image(t, Ext4, 0, o)
	first := Mount(t, Ext4, image, o)
	if err := os.WriteFile(filepath.Join(first, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(first, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(Mount(t, Ext4, image, o), "f")); err != nil {
		t.Error(err)
	}
}

// A device that is still used after its test must not go unnoticed.
func TestReleasedNotices(t *testing.T) {
	nstest.NewMount(t)
	image := Image(t, Ext4, 0)
	dev, err := attach(image, false)
	if err != nil {
		t.Fatal(err)
	}
	if busy, err := backs(dev.Name(), image); err != nil || !busy {
		t.Errorf("in use: %v, %v", busy, err)
	}
	dev.Close()
	if err := released(dev.Name(), image); err != nil {
		t.Error(err)
	}
}
