package nstest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// mount is one line of mountinfo, without what differs between namespaces.
type mount struct {
	id    string
	point string // as the kernel prints it, for display; see plain
	fs    string
	text  string
}

// readMounts reads the mounts of the calling thread's namespace, in mount
// order. /proc/self would be the main thread's.
func readMounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var ms []mount
	for line := range strings.Lines(string(b)) {
		head, tail, ok := strings.Cut(strings.TrimSpace(line), " - ")
		h, f := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(f) < 2 {
			return nil, fmt.Errorf("read mounts: strange line %q", line)
		}
		ms = append(ms, mount{
			id: h[0], point: octal.Replace(h[4]), fs: f[0],
			text: strings.Join([]string{h[4], h[2], h[3], h[5], f[0], f[1]}, " "),
		})
	}
	return ms, nil
}

// octal undoes the kernel's escapes in mountinfo, proc_pid_mountinfo(5).
var octal = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func mountIDs(t testing.TB) map[string]bool {
	t.Helper()
	ms, err := readMounts()
	if err != nil {
		t.Fatalf("nstest: %v", err)
	}
	ids := map[string]bool{}
	for _, m := range ms {
		ids[m.id] = true
	}
	return ids
}
