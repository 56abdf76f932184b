package linuxns

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// machine is what a probe could leave behind, as lines.
func machine(t *testing.T, dirs ...string) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(mounts), "\n")
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			lines = append(lines, filepath.Join(dir, e.Name()))
		}
	}
	return lines
}

func TestDoctorOnAFitMachine(t *testing.T) {
	nstest.Require(t, nstest.Root, nstest.Overlay, nstest.NetNS, nstest.TUN, nstest.NFT,
		nstest.UserNS, nstest.IDMap, nstest.Landlock, nstest.Cgroup2)
	cgroups, err := cgroup2Mount()
	if err != nil {
		t.Fatal(err)
	}
	stateRoot := t.TempDir()
	before := machine(t, stateRoot)
	found := Doctor{}.Probe(t.Context(), filepath.Join(stateRoot, "not", "yet", "made"))
	if diff := gocmp.Diff(before, machine(t, stateRoot)); diff != "" {
		t.Errorf("the probe left something (-before +after):\n%s", diff)
	}
	if left, _ := filepath.Glob(fmt.Sprintf("%s/netsandbox-doctor-%d*", cgroups, os.Getpid())); left != nil {
		t.Errorf("the probe left cgroups: %v", left)
	}
	var names []string
	for _, f := range found {
		about := slices.ContainsFunc(topics, func(o topic) bool { return o.name == f.Name })
		if f.Status != "ok" && f.Status != "leftover" && !about { // how its network is set up is not fitness
			t.Errorf("%s: %s: %s", f.Name, f.Status, f.Detail)
		}
		if f.Detail == "" {
			t.Errorf("%s has nothing to say", f.Name)
		}
		names = append(names, f.Name)
	}
	for _, want := range []string{
		"privileges", "user namespace", "pidfd", "seccomp", "landlock", "cgroup", "overlay",
		"state root", "joined namespaces", "shifted layer", "network namespace", "tun", "lanes", "socket mark", "nft owner", "idmap /",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no finding %q in %v", want, names)
		}
	}
}

func TestDoctorRefusesStateRootOnOverlay(t *testing.T) {
	nstest.NewMount(t, nstest.Overlay)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
	if err := unix.Mount("overlay", dir+"/merged", "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	_, err := tryStateRoot(t.Context(), dir+"/merged/state")
	if err == nil || !strings.Contains(err.Error(), "on overlay") {
		t.Errorf("state root on an overlay: %v", err)
	}
	if entries, _ := os.ReadDir(dir + "/upper"); len(entries) != 0 {
		t.Errorf("the refusal wrote %v", entries)
	}
}

// Without any right every check must end in a line that says what is missing.
func TestDoctorAsAnybody(t *testing.T) {
	const marker = "NETSANDBOX_TEST_DOCTOR"
	if dir := os.Getenv(marker); dir != "" {
		if err := json.NewEncoder(os.Stdout).Encode(Doctor{}.Probe(t.Context(), dir)); err != nil {
			t.Fatal(err)
		}
		return
	}
	nstest.Require(t, nstest.Root)
	c := exec.Command("/proc/self/exe", "-test.run=^TestDoctorAsAnybody$")
	c.Env = append(os.Environ(), marker+"="+t.TempDir())
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("probe as nobody: %v\n%s", err, out)
	}
	var found []backends.Finding
	if err := json.NewDecoder(strings.NewReader(string(out))).Decode(&found); err != nil {
		t.Fatalf("decode %q: %v", out, err)
	}
	status := map[string]string{}
	for _, f := range found {
		status[f.Name] = f.Status
		if f.Status != "ok" && (f.Detail == "" || f.Fix == "") {
			t.Errorf("%s is %s without reason or fix: %+v", f.Name, f.Status, f)
		}
	}
	for name, want := range map[string]string{
		"privileges": "missing", "state root": "missing", "overlay": "missing",
		"network namespace": "missing", "tun": "missing", "idmap /": "degraded",
		"cgroup": "degraded", "seccomp": "ok", "pidfd": "ok",
	} {
		if status[name] != want {
			t.Errorf("%s is %q for nobody, want %q", name, status[name], want)
		}
	}
}
