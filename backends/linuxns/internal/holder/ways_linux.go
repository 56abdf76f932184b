package holder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/envdir"
)

// openWays prepares what twins may make the host's kernel do. All twins of an
// environment share it; nothing is made before the first of them needs it.
func (h *Holder) openWays() (*lanes.Lanes, error) {
	return lanes.Open(h.host, lanes.Options{
		Record: h.dir.Path(envdir.Lanes), Owner: h.spec.Name, Marks: h.firewall.marks, Filters: h.firewall.filters,
	})
}

// tidy removes what dead holders left: in the host's network those of any
// environment, of processes and groups those of the environments beside this one.
func (h *Holder) tidy() error {
	_, err := h.sweeper.Sweep()
	errs := []error{err}
	beside := filepath.Dir(h.spec.Dir)
	entries, err := os.ReadDir(beside)
	errs = append(errs, err)
	for _, e := range entries {
		if e.IsDir() && e.Name() != filepath.Base(h.spec.Dir) {
			_, err := Settle(envdir.Dir(filepath.Join(beside, e.Name())))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweep removes from the host's network what dead holders left there, beside
// whatever else is done for a command. The command begins when that is over, so
// that the host is as it was when any command returns.
func (h *Holder) sweep() (swept <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := h.sweeper.Sweep(); err != nil {
			fmt.Fprintln(os.Stderr, "holder: sweep:", err)
		}
	}()
	return done
}

// tidyEvery bounds how often commands in one environment have others' remains
// looked for.
const tidyEvery = time.Second

// tidySoon has the holder tidy beside a command, which opens nothing itself that
// could. The last of many commands is followed by one, too.
func (h *Holder) tidySoon() {
	h.tidying.Lock()
	defer h.tidying.Unlock()
	if h.tidyPlanned {
		return
	}
	h.tidyPlanned = true
	time.AfterFunc(time.Until(h.tidied.Add(tidyEvery)), func() {
		h.tidying.Lock()
		h.tidyPlanned, h.tidied = false, time.Now()
		h.tidying.Unlock()
		if err := h.tidy(); err != nil {
			fmt.Fprintln(os.Stderr, "holder: tidy:", err)
		}
	})
}
