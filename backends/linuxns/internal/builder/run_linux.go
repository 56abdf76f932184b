package builder

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mounts"
)

// runDirs exist in a new /run: what tools expect to find, and nothing of the
// host's sockets.
var runDirs = []struct {
	name string
	mode uint32
}{{"lock", 0o1777}, {"netns", 0o755}, {"user", 0o755}, {"dbus", 0o755}}

// runFiles are copied into a new /run where the host has them. Resolver files
// are compared later, because /run is no layer and a changed resolv.conf that is
// a link into it would leave no trace.
var runFiles = []string{
	"/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf",
	"/run/resolvconf/resolv.conf", "/run/NetworkManager/resolv.conf",
	"/run/connman/resolv.conf", "/run/netconfig/resolv.conf",
}

const maxRunFile = 1 << 20

// runDir attaches the view's /run: the one of an earlier build, that of the view
// the canary looks at, or a new one.
func (b *build) runDir() error {
	place, err := mounts.Place(b.root, "run", false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(place)
	switch {
	case b.Merged != nil:
		return b.mergedRun(place)
	case b.Run >= 0:
		t, err := unix.FcntlInt(uintptr(b.Run), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		return mounts.Attach(t, place)
	}
	t, err := mounts.Tmpfs(unix.MOUNT_ATTR_NODEV, b.Mode.Shift, "755", b.bounds()...)
	if err != nil {
		return err
	}
	if err := b.fillRun(t); err != nil {
		unix.Close(t)
		return err
	}
	return mounts.Attach(t, place)
}

func (b *build) fillRun(t int) error {
	for _, d := range runDirs {
		if err := b.mkdir(t, d.name, d.mode); err != nil {
			return err
		}
	}
	b.view.Resolver = map[string]string{}
	files := runFiles
	if target := resolvTarget(); target != "" {
		files = append([]string{target}, files...)
	}
	for _, f := range files {
		if _, done := b.view.Resolver[f]; done {
			continue
		}
		data, mode, err := readHost(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil { // a view without it is still a view
			b.view.Notes = append(b.view.Notes, fmt.Sprintf("%s is not in the view: %v", f, err))
			continue
		}
		if err := b.writeRun(t, strings.TrimPrefix(f, "/run/"), data, mode); err != nil {
			return err
		}
		b.view.Resolver[f] = sum(data)
	}
	return nil
}

// sum is how the content of a resolver file is remembered.
func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// SumFile returns the same of a file as it is now.
func SumFile(f *os.File) (string, error) {
	data, err := io.ReadAll(io.LimitReader(f, maxRunFile+1))
	if err != nil {
		return "", err
	}
	return sum(data), nil
}

// sumAll is the sum of a whole file of any size.
func sumAll(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// resolvTarget returns the file in /run that /etc/resolv.conf links to, or "".
func resolvTarget() string {
	t, err := os.Readlink("/etc/resolv.conf")
	if err != nil {
		return ""
	}
	if !path.IsAbs(t) {
		t = path.Join("/etc", t)
	}
	if strings.HasPrefix(t, "/var/run/") {
		t = strings.TrimPrefix(t, "/var")
	}
	if !strings.HasPrefix(path.Clean(t), "/run/") {
		return ""
	}
	return path.Clean(t)
}

func readHost(p string) ([]byte, uint32, error) {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxRunFile {
		return nil, 0, errors.New("not a small regular file")
	}
	data := make([]byte, st.Size())
	n, err := f.ReadAt(data, 0)
	if n < len(data) && err != nil {
		return nil, 0, err
	}
	return data, uint32(st.Mode().Perm()), nil
}

func (b *build) writeRun(t int, rel string, data []byte, mode uint32) error {
	for i, c := range rel {
		if c != '/' {
			continue
		}
		if err := b.mkdir(t, rel[:i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return b.write(t, rel, data, mode)
}

func (b *build) write(t int, rel string, data []byte, mode uint32) error {
	fd, err := unix.Openat(t, rel, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	if err := f.Chmod(os.FileMode(mode)); err != nil {
		return fmt.Errorf("set mode of %s: %w", rel, err)
	}
	return b.own(t, rel)
}
