package envdir

// Window is when the entries of the layers that have no origin yet can have been
// made, as upper.Window has it.
type Window struct {
	TView, TExec int64
	Stepped      bool
}

// Window reads it from what the holder recorded. The record may be older than
// the view: then it says less, never more.
func (h Holder) Window() (Window, error) {
	w := Window{TView: h.View.Time, TExec: h.View.Time}
	var err error
	if w.Stepped, err = h.View.WentBack(); err != nil || w.Stepped || h.Exec.Time <= h.View.Time {
		return w, err
	}
	w.TExec = h.Exec.Time
	w.Stepped, err = h.Exec.WentBack()
	return w, err
}
