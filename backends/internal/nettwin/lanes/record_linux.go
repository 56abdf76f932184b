package lanes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// record is what is written before the first object is made: where to look for
// what. It says nothing about who lives.
type record struct {
	Owner string `json:"owner"`
	Boot  string `json:"boot"`
	NetNS uint64 `json:"netns"` // inode of the host's network namespace
	Block int    `json:"block"`
	First uint32 `json:"first"` // of the numbers: marks and tables
	Last  uint32 `json:"last"`
	Proto int    `json:"proto"` // of routes and rules
}

// intend writes the record, durably.
func (l *Lanes) intend(b block) error {
	if l.opt.Record == "" {
		return nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("record lanes: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(l.host.Fd()), &st); err != nil {
		return fmt.Errorf("record lanes: stat network namespace: %w", err)
	}
	text, err := json.Marshal(record{
		Owner: l.opt.Owner, Boot: strings.TrimSpace(string(boot)), NetNS: st.Ino,
		Block: int(b), First: b.number(0), Last: b.number(hops - 1), Proto: protocol,
	})
	if err == nil {
		err = renameio.WriteFile(l.opt.Record, append(text, '\n'), 0o600) // syncs the file
	}
	if err == nil {
		err = syncDir(l.opt.Record)
	}
	if err != nil {
		return fmt.Errorf("record lanes: %w", err)
	}
	return nil
}

// forget removes the record, when nothing is left that it could be about.
func (l *Lanes) forget() error {
	if l.opt.Record == "" {
		return nil
	}
	err := os.Remove(l.opt.Record)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(l.opt.Record)
	}
	if err != nil {
		return fmt.Errorf("forget record of lanes: %w", err)
	}
	return nil
}

func syncDir(file string) error {
	d, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
