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
	// beside: they are being written down while the view lives on; not again
	// before next, so that a large layer does not keep a processor busy.
	beside bool
	next   time.Time
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
// what is not. The caller holds h.mu, which the walk does without: it takes the
// lock of the origins alone.
func (h *Holder) dateBeside() {
	if h.dates.beside || time.Now().Before(h.dates.next) {
		return
	}
	w, err := h.window()
	if err != nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		return
	}
	h.dates.beside = true
	go func() {
		began := time.Now()
		if err := upper.Record(h.spec.Dir, w); err != nil {
			fmt.Fprintln(os.Stderr, "holder:", err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.dates.beside = false
		h.dates.next = time.Now().Add(10 * time.Since(began))
	}()
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
