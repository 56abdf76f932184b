package upper

import "testing"

// A directory that the view removed, or made anew, deletes what the host had in
// it when that was seen, and nothing that the host puts there later, though there
// was nothing at all to begin with and a newer view never showed it.
func TestHostAddsToADirectoryThatTheViewRemoved(t *testing.T) {
	for _, tt := range []struct{ name, host, view, want string }{
		{"an empty one removed", "mkdir d", "rmdir d", "deleted d\ndeleted d/new\n"},
		{"an empty one made anew", "mkdir d", "rmdir d; mkdir d", "deleted d/new\n"},
		{"an empty one replaced by a file", "mkdir d", "rmdir d; echo f > d", "replaced d\ndeleted d/new\n"},
		{"one with the same names", "mkdir d; echo a > d/a", "rm -r d; mkdir d; echo b > d/a", "modified d/a\ndeleted d/new\n"},
		{"one with other names", "mkdir d; echo a > d/a", "rm -r d; mkdir d", "deleted d/a\ndeleted d/new\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, tt.host)
			l.inView(tt.view)
			l.record()
			l.onHost("mkdir -p d; echo new > d/new")
			l.unmount()
			l.mount()
			l.want(tt.want + "blocked origin-uncertain d/new\n")
		})
	}
}

// The same below a directory that is itself made anew, which overlayfs does not mark.
func TestHostAddsBelowADirectoryMadeAnew(t *testing.T) {
	l := newLab(t, "mkdir -p d/e; echo a > d/e/a")
	l.inView("rm -r d; mkdir -p d/e; echo b > d/e/a")
	l.record()
	l.onHost("echo new > d/e/new")
	l.unmount()
	l.mount()
	l.want("modified d/e/a\ndeleted d/e/new\nblocked origin-uncertain d/e/new\n")
}
