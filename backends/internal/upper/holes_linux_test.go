package upper

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// layout makes a file of the given size with one page of data at each offset.
func layout(t *testing.T, name string, size int64, data ...int64) {
	t.Helper()
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	for i, at := range data {
		page := make([]byte, 4096)
		for j := range page {
			page[j] = byte(i + j)
		}
		_, err := f.WriteAt(page, at)
		must(t, err)
	}
	must(t, f.Truncate(size))
}

func TestHashOfAFileWithHoles(t *testing.T) {
	l := newLab(t, "true")
	const mib = 1 << 20
	files := map[string][]int64{
		"all": {}, "begins with one": {mib}, "ends with one": {0}, "in the middle": {0, 2 * mib}, "ends with data": {4*mib + 123 - 4096},
	}
	for name, data := range files {
		layout(t, filepath.Join(l.merged, name), 4*mib+123, data...)
	}
	d := l.diff()
	if len(d.Changes) != 5 {
		t.Fatalf("difference %+v", d)
	}
	for _, c := range d.Changes {
		name := filepath.Base(string(c.Path))
		b, err := os.ReadFile(filepath.Join(l.merged, name))
		must(t, err)
		sum := sha256.Sum256(b)
		if c.New.SHA256 != hex.EncodeToString(sum[:]) || !c.New.Sparse {
			t.Errorf("%s: %+v, want sha256 %x, sparse", name, *c.New, sum)
		}
		if n := int64(len(files[name])); c.New.Allocated < n*4096 || c.New.Allocated > n*8192 {
			t.Errorf("%s occupies %d bytes for %d pages", name, c.New.Allocated, n)
		}
	}
}

// A file of a tebibyte is made in an instant and must not hold anybody up.
func TestTooManyZerosBlock(t *testing.T) {
	l := newLab(t, "truncate -s 1T old; echo a > f")
	l.inView("truncate -s 1T new; rm old; truncate -s 1T f")
	began := time.Now()
	l.want("blocked huge f\nblocked huge new\nblocked huge old\n")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestHashingOfHolesCanBeStopped(t *testing.T) {
	l := newLab(t, "true")
	l.inView("truncate -s 32G f")
	stop := errors.New("stopped")
	asked := 0
	_, err := Diff(l.env, DiffOptions{Base: l.base, TView: l.tview, Stop: func() error {
		if asked++; asked > 10 {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
}
