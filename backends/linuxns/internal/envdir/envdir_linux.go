package envdir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/internal/regular"
)

// The names inside an environment's directory.
const (
	HolderLock = "holder.lock" // flock held by the holder for as long as it lives
	StartLock  = "start.lock"  // flock held while somebody starts a holder
	ExecSocket = "ctl.sock"    // commands, from the environment's owner
	OpSocket   = "op.sock"     // operations of the workflow
	Layers     = "layers"      // layers/KEY/{upper,work,source.json}
	Files      = "files"       // private copies of single-file mounts
	Build      = "build"       // empty; a builder mounts its scratch space on it
	TwinLost   = "twin-lost"   // present until the network is reset
	Log        = "holder.log"
	Record     = "holder.json"
	StampFile  = "stamp"
	Lanes      = "lanes"         // what the holder made, or was about to, in the host's routing
	Resolver   = "resolver.json" // what the files of the resolver in /run were
)

// Dir is the directory of one environment.
type Dir string

// Path returns the path of an entry.
func (d Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Holder is what the holder of an environment records about itself.
type Holder struct {
	PID    int    `json:"pid"`
	Start  uint64 `json:"start"` // clock ticks since boot, from /proc/PID/stat
	BootID string `json:"boot_id"`
	// Generation counts holders; more than one means that a twin was lost.
	Generation int    `json:"generation"`
	Mode       string `json:"mode"`
	Cgroup     string `json:"cgroup,omitempty"`
	// Init is PID 1 of the view as the host sees it, 0 when no view is built.
	Init      int    `json:"init,omitempty"`
	InitStart uint64 `json:"init_start,omitempty"`
	// View says since when what the view shows can have come apart from the host.
	View Clock `json:"view"`
	// Exec says since when the earliest command runs that can have written what has
	// no origin yet; it is never before View.
	Exec   Clock            `json:"exec"`
	Mounts []backends.Mount `json:"mounts,omitempty"`
	// Relay lists ports that were added after the environment was made.
	Relay []uint16 `json:"relay,omitempty"`
}

// Load reads the record of the last holder. A missing one is [fs.ErrNotExist].
func (d Dir) Load() (Holder, error) {
	var h Holder
	return h, d.read(Record, &h)
}

// Store replaces the record.
func (d Dir) Store(h Holder) error { return d.write(Record, h) }

// LoadResolver and StoreResolver keep the resolver files as they were when the
// view's /run was made, by path.
func (d Dir) LoadResolver() (map[string]string, error) {
	files := map[string]string{}
	err := d.read(Resolver, &files)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return files, err
}

// StoreResolver is the other half of LoadResolver.
func (d Dir) StoreResolver(files map[string]string) error { return d.write(Resolver, files) }

func (d Dir) read(name string, v any) error {
	b, err := regular.Read(d.Path(name))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %s: %w", d.Path(name), err)
	}
	return nil
}

// write replaces a file in one step. It is not synced: everything here is about
// processes and mounts that a power cut ends as well.
func (d Dir) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	tmp := d.Path(name + ".tmp")
	f, err := regular.Open(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(b)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(tmp, d.Path(name)); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}

// Lock takes the named lock of the environment. Without wait it returns
// [unix.EWOULDBLOCK] when another process has it.
func (d Dir) Lock(name string, wait bool) (*os.File, error) {
	f, err := regular.Open(d.Path(name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// Held reports whether a process holds the named lock.
func (d Dir) Held(name string) bool {
	f, err := d.Lock(name, false)
	if err == nil {
		f.Close()
		return false
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// StartTime returns when a process was started, in clock ticks since boot. With
// the boot id it tells a process from a later one of the same number.
func StartTime(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read start time of process %d: %w", pid, err)
	}
	// The second field is the name in parentheses and may hold anything.
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return 0, fmt.Errorf("read start time of process %d: short stat", pid)
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// BootID identifies this boot of the machine.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Alive reports whether the recorded process still runs.
func Alive(pid int, start uint64, boot string) bool {
	if pid <= 0 || boot != BootID() {
		return false
	}
	now, err := StartTime(pid)
	return err == nil && now == start
}
