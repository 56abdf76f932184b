package escape

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// world looks for what else lives on the machine: its sockets, its processes,
// its namespaces.
var world = []probe{
	{"host socket in a layer", func(f Fixture) (Verdict, string) { return connect(f.Socket) }},
	{"host socket below /run", func(f Fixture) (Verdict, string) { return connect(f.RunSocket) }},
	{"host abstract socket", func(f Fixture) (Verdict, string) { return connect("@" + f.Abstract) }},
	{"namespaces of the host", hostNamespaces},
	{"ptrace of pid 1", func(Fixture) (Verdict, string) { return allowed(seize(1)) }},
}

func connect(path string) (Verdict, string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return judge(err, "")
	}
	defer unix.Close(fd)
	return judge(unix.Connect(fd, &unix.SockaddrUnix{Name: path}), "connected")
}

// hostNamespaces looks at every process there is to see. Which kinds must be
// the view's own is the design's choice; the time namespace is not among them.
func hostNamespaces(f Fixture) (Verdict, string) {
	for _, kind := range []string{"mnt", "net", "pid", "ipc", "uts"} {
		links, _ := filepath.Glob("/proc/[0-9]*/ns/" + kind)
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && target == f.Namespaces[kind] {
				return Hole, link
			}
		}
	}
	return Denied, "none seen"
}

// seize attaches without stopping; the tracer's end detaches.
func seize(pid int) (v Verdict, detail string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
		if e != 0 {
			v, detail = judge(e, "")
			return
		}
		v, detail = Hole, "attached"
	}()
	<-done
	return v, detail
}

// nesting does the mount and state probes again with the full capabilities of
// a second user namespace.
var nesting = []probe{
	{"nested user namespace", nested},
}

// nested reports a hole when any probe of the copy does. Its lines go out as
// they come.
func nested(Fixture) (Verdict, string) {
	self, err := os.Executable()
	if err != nil {
		return judge(err, "")
	}
	var out strings.Builder
	c := exec.Command(self, os.Args[1], "nested")
	c.Args[0] = Name
	c.Stdout, c.Stderr = &out, os.Stderr
	root := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: root, GidMappings: root,
	}
	err = c.Run()
	os.Stdout.WriteString(out.String())
	if err != nil && out.Len() == 0 {
		return judge(err, "")
	}
	if strings.Contains(out.String(), `"verdict":"hole"`) {
		return Hole, "see the nested lines"
	}
	return Allowed, "created"
}
