package escape

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// Name is the base name of argv[0] under which a test binary runs [Main].
const Name = "netsandbox-escape-probes"

// Verdict is what one probe found, in one word.
type Verdict string

// The verdicts. Only a Hole is a finding.
const (
	Denied  Verdict = "denied"  // the kernel refused
	Absent  Verdict = "absent"  // this kernel or this view has no such thing
	Allowed Verdict = "allowed" // it works, and reaches nothing but the view itself
	Hole    Verdict = "hole"    // it reaches the host, or kernel surface that must be closed
)

// Result is one line of the program's output.
type Result struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"` // an errno name, or what was reached
}

// Fixture is what a test lays out on the host for the probes to find.
type Fixture struct {
	// Marker is a file below the state root, and Secret its content.
	Marker string
	Secret string
	// StateRoot is the covered directory.
	StateRoot string
	// Socket, RunSocket and Abstract are listening UNIX sockets of the host: in a
	// layered directory, below /run, and in the abstract name space.
	Socket    string
	RunSocket string
	Abstract  string
	// BlockNode is a node of the disk below the host's root, in a layered directory.
	BlockNode string
	// Namespaces are the links in the host's /proc/self/ns.
	Namespaces map[string]string
}

type probe struct {
	name string
	try  func(Fixture) (Verdict, string)
}

// Main runs every probe and prints one JSON object a line. Its arguments are
// the fixture as JSON and, in the copy it starts in a nested user namespace,
// the word "nested".
func Main() {
	var f Fixture
	if err := json.Unmarshal([]byte(os.Args[1]), &f); err != nil {
		fmt.Fprintf(os.Stderr, "read fixture: %v\n", err)
		os.Exit(2)
	}
	prefix, probes := "", slices.Concat(settings, mounts, devices, systemCalls, archSystemCalls, state, world, nesting)
	if len(os.Args) > 2 && os.Args[2] == "nested" {
		// What a second user namespace could add is power over mounts.
		prefix, probes = "nested: ", slices.Concat(mounts, state)
	}
	out := json.NewEncoder(os.Stdout)
	for _, p := range probes {
		v, detail := p.try(f)
		if err := out.Encode(Result{prefix + p.name, v, detail}); err != nil {
			os.Exit(2)
		}
	}
}

// judge turns the error of an attempt into a verdict: what worked is a hole.
func judge(err error, worked string) (Verdict, string) {
	switch {
	case err == nil:
		return Hole, worked
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENOSYS):
		return Absent, errno(err)
	default:
		return Denied, errno(err)
	}
}

// reached judges a system call that must be refused before it looks at its
// arguments: any answer but a refusal means that the kernel went on.
func reached(err error) (Verdict, string) {
	switch {
	case err == nil:
		return Hole, "OK"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return Denied, errno(err)
	case errors.Is(err, unix.ENOSYS):
		return Absent, errno(err)
	default:
		return Hole, "reached: " + errno(err)
	}
}

// allowed turns a hole into something the shifted mode permits: it stays inside.
func allowed(v Verdict, detail string) (Verdict, string) {
	if v == Hole {
		return Allowed, detail
	}
	return v, detail
}

func errno(err error) string {
	var e unix.Errno
	if errors.As(err, &e) {
		return unix.ErrnoName(e)
	}
	return err.Error()
}

// apart runs f on a thread of its own, with its own root and directory, that
// dies with it. Where the kernel lets it, mounts are the thread's own too, so
// that what a probe takes apart is whole for the next one.
func apart(f func() (Verdict, string)) (v Verdict, detail string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			v, detail = Absent, "unshare(CLONE_FS): "+errno(err)
			return
		}
		if unix.Unshare(unix.CLONE_NEWNS) == nil {
			// "/" is shared in a view, and a change here would travel back.
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		v, detail = f()
	}()
	<-done
	return v, detail
}

// scratch runs f with an empty directory.
func scratch(f func(dir string) (Verdict, string)) (Verdict, string) {
	dir, err := os.MkdirTemp("/tmp", "escape-")
	if err != nil {
		return Absent, "no scratch directory: " + errno(err)
	}
	defer os.Remove(dir) // never a tree: something may be mounted on it
	return f(dir)
}
