package holder

import (
	"fmt"
	"os"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/upper"
)

// dates is how far the origins of what is in the layers are written down.
type dates struct {
	done bool // nothing can have been written since all of them were
	// beside: they are being written down while the view lives on, or will be at
	// next, so that a large layer does not keep a processor busy; again says that
	// something more was written meanwhile.
	beside, again bool
	next          time.Time
}

// date records origins unless nothing can have been written since it was done.
func (h *Holder) date() error {
	if h.dates.done {
		return nil
	}
	if err := h.recordOrigins(); err != nil {
		return err
	}
	h.dates.done = true
	return nil
}

// begin says that nothing lives in the view which could have written to it or
// remember what it once read there: a command that starts now is the earliest
// that can have made whatever has no origin yet. The caller holds h.mu.
func (h *Holder) begin() error {
	if err := h.date(); err != nil {
		return err
	}
	now, err := h.dir.Stamp()
	if err != nil {
		return err
	}
	h.rec.Exec = now
	return h.record()
}

// dateBeside records origins while something lives on in the view. What the host
// changes afterwards is then a conflict with what is known, and no doubt about
// what is not. The caller holds h.mu.
func (h *Holder) dateBeside() {
	if h.dates.beside {
		h.dates.again = true
		return
	}
	h.dates.beside = true
	time.AfterFunc(time.Until(h.dates.next), h.dateLive)
}

// dateLive does the walk without h.mu: commands go on meanwhile. It takes the
// lock of the origins alone, and who edits the layers waits for that.
func (h *Holder) dateLive() {
	h.mu.Lock()
	w, err := h.window()
	h.dates.again = false
	ended := h.dates.done // with the view
	h.mu.Unlock()
	began := time.Now()
	if err == nil && !ended {
		err = upper.Record(h.spec.Dir, w)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dates.beside, h.dates.next = false, time.Now().Add(10*time.Since(began))
	if h.dates.again {
		h.dateBeside()
	}
}

// recordOrigins writes down what upper entries came from, as far as that is
// known now.
func (h *Holder) recordOrigins() error {
	w, err := h.window()
	if err != nil {
		return err
	}
	return upper.Record(h.spec.Dir, w)
}

// window is when what has no origin yet can have been made. That the clock was
// set back is not forgotten for as long as the view lives.
func (h *Holder) window() (upper.Window, error) {
	w, err := h.rec.Window()
	if w.Stepped {
		h.rec.View.Stepped = true
	}
	return upper.Window(w), err
}
