package escape

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// view is an environment over the machine's own files.
type view struct {
	t    *testing.T
	b    *linuxns.Backend
	spec backends.Spec
}

func newView(t *testing.T, stateRoot, mode string) *view {
	t.Helper()
	nstest.Require(t, nstest.Root, nstest.Overlay, nstest.NetNS, nstest.TUN, nstest.Cgroup2)
	if mode == "shifted" {
		nstest.Require(t, nstest.UserNS, nstest.IDMap)
	}
	var id [13]byte
	rand.Read(id[:])
	v := &view{t: t, b: linuxns.New(), spec: backends.Spec{
		Name: "escape", ID: hex.EncodeToString(id[:]), StateRoot: stateRoot,
		Dir: filepath.Join(stateRoot, "escape"), Base: "/", Mode: mode,
	}}
	if err := os.Mkdir(v.spec.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	made, err := v.b.Create(t.Context(), v.spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.b.Open(v.spec).Discard(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if made.Mode != mode {
		t.Fatalf("mode is %q, want %q: %v", made.Mode, mode, made.Notes)
	}
	return v
}

// exec runs a command as root of the view.
func (v *view) exec(argv ...string) (status int, out string) {
	v.t.Helper()
	var b bytes.Buffer
	status, err := v.b.Exec(v.t.Context(), v.spec, backends.ExecRequest{
		Argv: argv, Cwd: "/", Stdout: &b, Stderr: os.Stderr,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C"},
	})
	if err != nil {
		v.t.Errorf("exec %v: %v", argv, err)
	}
	return status, b.String()
}

// battery runs the probes in a fresh view of the mode.
func battery(t *testing.T, mode string) []Result {
	t.Helper()
	nstest.Require(t, nstest.Root)
	f := layOut(t)
	v := newView(t, f.StateRoot, mode)
	arg, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(f.Socket), Name)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	status, out := v.exec(program, string(arg))
	if status != 0 {
		t.Errorf("probes ended with %d", status)
	}
	results := decode(t, []byte(out))
	// The last probe says that none before it took the program down.
	if !slices.ContainsFunc(results, func(r Result) bool { return r.Name == nesting[len(nesting)-1].name }) {
		t.Errorf("the battery did not come to its end:\n%s", out)
	}
	return results
}

func TestNoWayOutOfAShiftedView(t *testing.T) {
	results := battery(t, "shifted")
	for _, r := range holes(results) {
		t.Errorf("hole: %+v", r)
	}
	verdicts := byName(results)
	// What services need, and "caps" cannot give.
	for _, name := range []string{"tmpfs", "fsopen", "open_tree", "setns", "nested user namespace"} {
		if verdicts[name].Verdict != Allowed {
			t.Errorf("%s must work in a shifted view: %+v", name, verdicts[name])
		}
	}
	// Denied for the reason the design relies on: the kernel's own settings belong
	// to an id that the view does not have, however they are mounted.
	for name, detail := range map[string]string{
		"core_pattern": "EACCES", "new proc, core_pattern": "EACCES", "bind /proc without its masks, core_pattern": "EACCES",
		"umount /dev": "EINVAL", "state: umount of the cover": "EINVAL", "new sysfs, mm knob": "EPERM|EACCES",
		"mknod block in /tmp": "EPERM", "devtmpfs": "EPERM", "bpf": "EPERM", "io_uring_setup": "EPERM", "keyctl": "EPERM",
		"block node of the lower": "EACCES", "cgroup.freeze of the own cgroup": "EACCES",
	} {
		if got := verdicts[name]; got.Verdict != Denied || !slices.Contains(strings.Split(detail, "|"), got.Detail) {
			t.Errorf("%s: got %+v, want denied with %s", name, got, detail)
		}
	}
}

func TestNoWayOutOfACapsView(t *testing.T) {
	results := battery(t, "caps")
	for _, r := range holes(results) {
		t.Errorf("hole: %+v", r)
	}
	verdicts := byName(results)
	// Mounts are not locked here, so nothing that makes or enters one may work.
	for _, name := range []string{"tmpfs", "fsopen", "open_tree", "setns", "nested user namespace", "new proc, core_pattern", "umount /dev"} {
		if got := verdicts[name]; got.Verdict != Denied || got.Detail != "EPERM" {
			t.Errorf("%s: got %+v, want denied with EPERM", name, got)
		}
	}
	for name, detail := range map[string]string{
		"core_pattern": "EROFS", "vm.overcommit_memory": "EROFS", "mknod char in /tmp": "EPERM", "kallsyms": "empty",
		"block node of the lower": "EACCES", "open_by_handle_at": "EPERM", "reboot": "EPERM",
	} {
		if got := verdicts[name]; got.Verdict != Denied || got.Detail != detail {
			t.Errorf("%s: got %+v, want denied with %s", name, got, detail)
		}
	}
}

// The same program, in the same kind of view, finds what hardening closes.
func TestUnhardenedViewIsFullOfHoles(t *testing.T) {
	before, err := os.ReadFile("/proc/" + corePattern)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(holes(battery(t, "unhardened"))); n < 20 {
		t.Errorf("%d holes found, want at least 20", n)
	}
	if after, err := os.ReadFile("/proc/" + corePattern); err != nil || !bytes.Equal(before, after) {
		t.Errorf("core_pattern was %q and is %q, %v", before, after, err)
	}
}

func byName(results []Result) map[string]Result {
	m := map[string]Result{}
	for _, r := range results {
		m[r.Name] = r
	}
	return m
}
