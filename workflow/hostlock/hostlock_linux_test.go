package hostlock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// A rival is this binary started again: it takes the lock, or inherits it, and
// holds it until its input ends.
const partVar = "HOSTLOCK_TEST_PART"

func TestMain(m *testing.M) {
	part := os.Getenv(partVar)
	if part == "" {
		nstest.Main(m)
	}
	who := Holder{PID: os.Getpid(), Env: part}
	var l *Lock
	var err error
	if n, _ := strconv.Atoi(os.Args[1]); n > 0 {
		var files []*os.File
		for i := range n {
			files = append(files, os.NewFile(uintptr(3+i), "inherited"))
		}
		l, err = Adopt(who, files)
	} else {
		l, err = Take(who, os.Args[2:]...)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	who.Txn = "apply-of-" + part // which is known only later
	if err := l.Describe(who); err != nil {
		os.Exit(1)
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := l.Close(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// rival starts one that holds the lock, and returns it with how to end it.
func rival(t *testing.T, part string, inherit []*os.File, paths ...string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe", append([]string{strconv.Itoa(len(inherit))}, paths...)...)
	cmd.Env = append(os.Environ(), partVar+"="+part)
	cmd.ExtraFiles = inherit
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() { in.Close(); _ = cmd.Wait() }
	t.Cleanup(func() { _ = cmd.Process.Kill(); end() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("rival said %q (%v)", line, err)
	}
	return cmd, end
}

// busy takes the lock, which must fail.
func busy(t *testing.T, paths ...string) *BusyError {
	t.Helper()
	l, err := Take(Holder{PID: os.Getpid(), Env: "mine", Txn: "apply-mine"}, paths...)
	if err == nil {
		l.Close()
	}
	var b *BusyError
	if !errors.As(err, &b) || !errors.Is(err, ErrBusy) {
		t.Fatalf("Take = %v, want a BusyError", err)
	}
	return b
}

func free(t *testing.T, paths ...string) {
	t.Helper()
	l, err := Take(Holder{PID: os.Getpid(), Env: "mine", Txn: "apply-mine"}, paths...)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// scratch is a filesystem of its own, so that the machine's is never locked.
func scratch(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSecondTrialIsToldWhoHasTheHost(t *testing.T) {
	nstest.New(t)
	cmd, end := rival(t, "theirs", nil, scratch(t))
	for range 3 { // it goes on answering
		b := busy(t, scratch(t))
		want := Holder{PID: cmd.Process.Pid, UID: uint32(os.Getuid()), Env: "theirs", Txn: "apply-of-theirs"}
		if d := cmp.Diff(want, b.Holder); d != "" {
			t.Errorf("holder (-want +got):\n%s", d)
		}
		if !strings.Contains(b.Error(), "apply-of-theirs of environment theirs") {
			t.Errorf("it says %q", b.Error())
		}
	}
	end()
	free(t, scratch(t))
}

func TestKilledHolderFreesTheHost(t *testing.T) {
	nstest.New(t)
	cmd, _ := rival(t, "theirs", nil, scratch(t))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	free(t, scratch(t))
}

func TestStoppedHolderIsNamedByTheKernel(t *testing.T) {
	nstest.New(t)
	cmd, _ := rival(t, "theirs", nil, scratch(t))
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventuallyStopped(t, cmd.Process.Pid)
	if b := busy(t, scratch(t)); b.Holder.PID != cmd.Process.Pid || b.Holder.Txn != "" {
		t.Errorf("holder %+v, want pid %d and nothing said", b.Holder, cmd.Process.Pid)
	}
}

// eventuallyStopped waits until every thread has taken the stop.
func eventuallyStopped(t *testing.T, pid int) {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

func TestHeirHoldsTheHostAfterTheApplier(t *testing.T) {
	nstest.New(t)
	disk := scratch(t)
	mine, err := Take(Holder{PID: os.Getpid(), Env: "mine", Txn: "apply-mine"}, disk)
	if err != nil {
		t.Fatal(err)
	}
	_, end := rival(t, "keeper", mine.Files())
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
	if b := busy(t, disk); b.Holder.Env != "keeper" {
		t.Errorf("holder after the applier: %+v", b.Holder)
	}
	end()
	free(t, disk)
}

// A container with the host's files has another network namespace, where the
// socket's name is not taken.
func TestFilesystemIsLockedAcrossNetworkNamespaces(t *testing.T) {
	nstest.New(t)
	disk, other := scratch(t), scratch(t)
	_, end := rival(t, "theirs", nil, filepath.Join(disk, "not", "there", "yet"))
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	b := busy(t, filepath.Join(other, "file"), filepath.Join(disk, "file"))
	if b.Filesystem != disk || b.Holder.PID != 0 {
		t.Errorf("busy with %+v, want the filesystem at %s", b, disk)
	}
	free(t, filepath.Join(other, "file")) // what was locked before the refusal is free again
	end()
	free(t, filepath.Join(disk, "file"))
}

func TestWithoutPathsTheBaseIsLocked(t *testing.T) {
	nstest.New(t)
	base := scratch(t)
	mine, err := Take(Holder{PID: os.Getpid(), Base: base})
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	if b := busy(t, base); b.Filesystem != base {
		t.Errorf("busy with %+v, want the filesystem at %s", b, base)
	}
}

func TestTopIsWhereAFilesystemBegins(t *testing.T) {
	nstest.NewMount(t)
	disk := scratch(t)
	if err := os.MkdirAll(filepath.Join(disk, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(disk, "a"), link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{disk, disk + "/a/b", disk + "/a/b/new/file", link, link + "/b"} {
		if got, _, err := top("/", path); got != disk || err != nil {
			t.Errorf("top(%s) = %s (%v), want %s", path, got, err, disk)
		}
	}
	if got, _, err := top(link, disk+"/a/b/new"); got != disk+"/a" || err != nil {
		t.Errorf("top below a base = %s (%v), want the base", got, err)
	}
	if got, _, err := top("/", "/nowhere/at/all"); got != "/" || err != nil {
		t.Errorf("top(/nowhere/at/all) = %s (%v), want /", got, err)
	}
}
