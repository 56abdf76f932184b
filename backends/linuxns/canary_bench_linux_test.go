package linuxns

import (
	"testing"

	"github.com/netsandbox/netsandbox/backends"
)

// One canary in each world, to be compared with BenchmarkBubblewrap in the same
// run. Control and cut include their share of a network that canaries in a row
// have together.
func BenchmarkCanary(b *testing.B) {
	e := newEnv(b)
	p := backends.Probe{Argv: []string{"/bin/true"}, Cwd: "/"}
	for _, where := range worlds {
		b.Run(string(where), func(b *testing.B) {
			for b.Loop() {
				if got := e.canary(where, p); !got.OK() {
					b.Fatalf("%+v", got)
				}
			}
		})
	}
}
