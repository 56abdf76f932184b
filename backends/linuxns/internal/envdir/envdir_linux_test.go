package envdir

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestLock(t *testing.T) {
	d := Dir(t.TempDir())
	if d.Held(HolderLock) {
		t.Error("held before anybody took it")
	}
	f, err := d.Lock(HolderLock, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock(HolderLock, false); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second lock: %v", err)
	}
	if !d.Held(HolderLock) {
		t.Error("not seen as held")
	}
	f.Close()
	if d.Held(HolderLock) {
		t.Error("still held")
	}
}

func TestRecord(t *testing.T) {
	d := Dir(t.TempDir())
	if _, err := d.Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before a record: %v", err)
	}
	want := Holder{PID: 7, Generation: 2, Mode: "shifted", View: Clock{Time: 9}}
	if err := d.Store(want); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Load(); err != nil || got.PID != 7 || got.Generation != 2 || got.View.Time != 9 {
		t.Errorf("loaded %+v, %v", got, err)
	}
	if err := os.WriteFile(d.Path(Record), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a broken record: %v", err)
	}
}

func TestAlive(t *testing.T) {
	pid := os.Getpid()
	start, err := StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		pid   int
		start uint64
		boot  string
		want  bool
	}{
		{"itself", pid, start, BootID(), true},
		{"an earlier process of the number", pid, start - 1, BootID(), false},
		{"another boot", pid, start, "x", false},
		{"nobody", 0, 0, BootID(), false},
	} {
		if got := Alive(tc.pid, tc.start, tc.boot); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestStamp(t *testing.T) {
	d := Dir(t.TempDir())
	before := time.Now()
	c, err := d.Stamp()
	if err != nil {
		t.Fatal(err)
	}
	// Never later than a file that is changed after it.
	if err := os.WriteFile(d.Path("later"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(d.Path("later"), &st); err != nil {
		t.Fatal(err)
	}
	if c.Time >= st.Ctim.Nano() {
		t.Errorf("stamp %d, a later file %d", c.Time, st.Ctim.Nano())
	}
	if age := before.UnixNano() - c.Time; age > int64(time.Second) {
		t.Errorf("the stamp is %v old", time.Duration(age))
	}
}

func TestWentBack(t *testing.T) {
	c, err := Dir(t.TempDir()).Stamp()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*Clock)
		want   bool
	}{
		{"no step", func(*Clock) {}, false},
		{"a step back", func(c *Clock) { c.Offset += int64(2 * time.Second) }, true},
		{"a step forward", func(c *Clock) { c.Offset -= int64(time.Hour) }, false},
		{"a small step back", func(c *Clock) { c.Offset += int64(3 * time.Millisecond) }, true},
		{"what two readings differ by", func(c *Clock) { c.Offset += int64(100 * time.Microsecond) }, false},
		{"another boot, whose clock nobody watched", func(c *Clock) { c.BootID = "x" }, true},
		{"seen before", func(c *Clock) { c.Stepped = true; c.BootID = "x" }, true},
	} {
		moved := c
		tc.change(&moved)
		if got, err := moved.WentBack(); err != nil || got != tc.want {
			t.Errorf("%s: %v, %v", tc.name, got, err)
		}
	}
}
