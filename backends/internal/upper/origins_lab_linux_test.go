package upper

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/nstest"
	"github.com/netsandbox/netsandbox/backends/nstest/loopfs"
)

// labAt is a lab whose host is a mount that is there already.
func labAt(t testing.TB, host, script string) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, env: filepath.Join(dir, "env"), host: host, merged: filepath.Join(dir, "merged"), base: host}
	for _, d := range []string{l.merged, l.env + "/layers/root/upper", l.env + "/layers/root/work"} {
		must(t, os.MkdirAll(d, 0o755))
	}
	src, err := json.Marshal(Source{Point: l.host})
	must(t, err)
	must(t, os.WriteFile(l.env+"/layers/root/source.json", src, 0o600))
	l.onHost(script)
	l.mount()
	t.Cleanup(func() { must(t, unix.Unmount(l.merged, 0)) })
	return l
}

// newLabOn is a lab whose host is an ext4 of its own.
func newLabOn(t testing.TB, script string, o loopfs.Options) *lab {
	t.Helper()
	nstest.NewMount(t, nstest.Overlay)
	return labAt(t, loopfs.Make(t, loopfs.Ext4, 0, o), script)
}
