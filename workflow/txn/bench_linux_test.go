package txn

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
	"github.com/netsandbox/netsandbox/backends/hostfiles"
	"github.com/netsandbox/netsandbox/backends/nstest/versus"
)

// store is a [backends.Wanted] on disk, as a plan's is.
type store string

func (s store) Open(sum string) (io.ReadCloser, error) { return os.Open(filepath.Join(string(s), sum)) }

// BenchmarkApply replaces 1 000 and 10 000 files of 900 bytes, checked, with two
// backups and durably, and takes it back; side by side with cp, without and with a
// backup, and rsync writing the same bytes over the same files. Both sizes are in
// every round, so that their ratio says how the cost grows.
func BenchmarkApply(b *testing.B) {
	// The machine's own filesystem may have no journal, and then it looks for an
	// inode that was not deleted in the last seconds at every create
	// (recently_deleted, fs/ext4/ialloc.c); and other people's dirty data would be
	// in the syncs.
	disk := loopExt4(b, "2G")
	var s versus.Series
	for b.Loop() {
		for range 3 {
			round(b, disk, 1000, "1k", &s)
		}
		round(b, disk, 10000, "10k", &s)
	}
	ratios := []string{"apply-10k/apply-1k", "undo-10k/undo-1k", "cp+sync-10k/cp+sync-1k"}
	for _, size := range []string{"1k", "10k"} {
		for _, than := range []string{"cp+sync", "backup+cp+sync", "rsync+sync"} {
			ratios = append(ratios, "apply-"+size+"/"+than+"-"+size)
		}
		ratios = append(ratios, "undo-"+size+"/apply-"+size, "apply-"+size+"-cpu/backup+cp+sync-"+size+"-cpu")
	}
	s.Report(b, ratios...)
}

func round(b *testing.B, disk string, n int, size string, s *versus.Series) {
	at, err := os.MkdirTemp(disk, "round")
	if err != nil {
		b.Fatal(err)
	}
	w := newWorldAt(b, at)
	src, content := filepath.Join(at, "src"), store(filepath.Join(at, "plan"))
	w.ok(os.Mkdir(string(content), 0o700))
	fill := func(root, tag string) (files []string) {
		for i := range n {
			p := fmt.Sprintf("/etc/many/%d/%d.conf", i/100, i)
			if i%100 == 0 {
				w.ok(os.MkdirAll(filepath.Join(root, filepath.Dir(p)), 0o755))
			}
			w.ok(os.WriteFile(filepath.Join(root, p), fmt.Appendf(nil, "%s %0900d\n", tag, i), 0o644))
			files = append(files, p)
		}
		return files
	}
	fill(src, "new")
	files := fill(w.root, "old")
	cs := make([]change.Change, n)
	for i, p := range files {
		text, err := os.ReadFile(filepath.Join(src, p))
		w.ok(err)
		cs[i], err = planOne(w.host(), w.wanted, p, string(text))
		w.ok(err)
		w.ok(os.WriteFile(filepath.Join(string(content), cs[i].New.SHA256), text, 0o600))
	}
	w.ok(os.MkdirAll(filepath.Join(w.root, "etc/many"), 0o755))
	ctx := context.Background()
	host := hostfiles.New(w.root)
	var x *Txn
	took, used := time.Duration(0), versus.Processor()
	phase := func(name string, f func() error) {
		took += s.Time("apply-"+name+"-"+size, func() { w.ok(f()) })
	}
	unix.Sync()
	phase("preflight", func() error {
		blockers, err := host.Preflight(ctx, cs)
		if len(blockers) > 0 {
			b.Fatalf("%+v", blockers)
		}
		return err
	})
	phase("prepare", func() (err error) {
		if x, err = Create(w.dir, Header{}); err != nil {
			return err
		}
		return x.Prepare(ctx, host, cs)
	})
	phase("stage", func() error { return x.Stage(ctx, host, content) })
	phase("swap", func() error { return x.Swap(ctx, host) })
	phase("verify", func() error {
		left, err := x.Verify(ctx, host)
		if len(left) > 0 {
			b.Fatalf("%+v", left)
		}
		return err
	})
	s.Took("apply-"+size, took)
	s.Took("apply-"+size+"-cpu", versus.Processor()-used)
	unix.Sync()
	s.Cost("undo-"+size, func() {
		left, err := x.Undo(ctx, host, Applier, "")
		w.ok(err)
		if len(left) > 0 {
			b.Fatalf("%+v", left)
		}
	})
	w.ok(x.Close())
	over := func(name string, argv ...string) {
		fill(w.root, "old")
		unix.Sync()
		used := time.Duration(0)
		s.Time(name+"-"+size, func() {
			for _, c := range [][]string{argv, {"sync", "-f", w.root}} {
				cmd := exec.Command(c[0], c[1:]...)
				out, err := cmd.CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %v\n%s", c, err, out)
				}
				used += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			}
		})
		s.Took(name+"-"+size+"-cpu", used)
	}
	over("cp+sync", "cp", "-a", src+"/.", w.root+"/")
	over("backup+cp+sync", "sh", "-c", `cp -a "$1" "$2" && cp -a "$3/." "$1/"`, "sh", w.root, filepath.Join(at, "backup"), src)
	over("rsync+sync", "rsync", "-a", "-I", src+"/", w.root+"/")
	w.ok(os.RemoveAll(at))
}
