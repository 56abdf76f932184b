package xattr

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Path names an object for the calls that take no directory descriptor (those
// that do came with Linux 6.13). The kernel's own links are followed, the last
// element is not; with an empty name it is the directory itself.
func Path(dir int, name string) string {
	p := fmt.Sprintf("/proc/self/fd/%d", dir)
	if name == "" {
		name = "."
	}
	return p + "/" + name
}

// All returns every extended attribute, each once; none where the filesystem has
// no such thing.
func All(dir int, name string) (map[string][]byte, error) {
	names, err := sized(func(b []byte) (int, error) { return list(dir, name, b) })
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list attributes of %s: %w", change.Escape(name), err)
	case len(names) == 0:
		return nil, nil
	}
	path := Path(dir, name)
	all := map[string][]byte{}
	for k := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if mirrored(k) {
			continue
		}
		v, err := sized(func(b []byte) (int, error) { return unix.Lgetxattr(path, k, b) })
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("read attribute %s of %s: %w", k, change.Escape(name), err)
		}
		all[k] = bytes.Clone(v)
	}
	return all, nil
}

// Planned returns the attributes that a plan carries, in canonical form; nil
// where there are none.
func Planned(dir int, name string) (map[string][]byte, error) {
	all, err := All(dir, name)
	if err != nil {
		return nil, err
	}
	return Filter(all), nil
}

// sized repeats a call until its answer of unknown length fits: attributes may
// be set between asking for the size and reading. XATTR_SIZE_MAX and
// XATTR_LIST_MAX are 64 KiB.
func sized(call func([]byte) (int, error)) ([]byte, error) {
	for size := 256; ; size *= 4 {
		b := make([]byte, size)
		n, err := call(b)
		if errors.Is(err, unix.ERANGE) && size <= 64<<10 {
			continue
		}
		if err != nil {
			return nil, err
		}
		return b[:n], nil
	}
}
