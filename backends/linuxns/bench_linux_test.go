package linuxns

import (
	"os"
	"os/exec"
	"testing"
)

// The two costs of a command: in a view that something keeps alive, and in one
// that is built again first. Compare with BenchmarkBubblewrap in the same run.
func BenchmarkExecLive(b *testing.B) {
	e := newEnv(b)
	e.detach("sleep", "1000")
	for b.Loop() {
		e.must("true")
	}
}

func BenchmarkExecRebuild(b *testing.B) {
	e := newEnv(b)
	for b.Loop() {
		e.must("true")
	}
}

func BenchmarkBubblewrap(b *testing.B) {
	dir := b.TempDir()
	for _, d := range []string{"upper", "work"} {
		if err := os.Mkdir(dir+"/"+d, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		c := exec.Command("bwrap", "--bind", "/", "/",
			"--proc", "/proc", "--dev", "/dev", "--unshare-net", "--unshare-pid", "true")
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}
