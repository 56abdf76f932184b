package upper

import (
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestHardLinks(t *testing.T) {
	nstest.Require(t, nstest.Root)
	const pair = "echo a > f; ln f g"
	show(t, []example{
		{"of a host file", "echo a > f", "ln f g", "modified f mode 0644 owner 0:0\nadded g = f\n"},
		{"the first name in byte order leads", "echo a > f", "ln f b; ln f z", "added b\nmodified f mode 0644 owner 0:0 = b\nadded z = b\n"},
		{"of a new file", "mkdir d", "echo x > f; ln f d/g", "added d/g\nadded f = d/g\n"},
		{"in a new directory", "true", "mkdir d; echo x > d/f; ln d/f d/g", "added d/\nadded d/f\nadded d/g = d/f\n"},
		{"over another file", "echo a > f; echo b > g", "ln -f f g", "modified f mode 0644 owner 0:0\nmodified g = f\n"},
		{"over a symlink", "echo a > f; ln -s f g", "rm g; ln f g", "modified f mode 0644 owner 0:0\nreplaced g = f\n"},
		{"broken by a write to one name", pair, "echo b >> g", "modified g\n"},
		{"both names written and joined again", pair, "echo b > f; ln -f f g", "modified f\nmodified g = f\n"},
		{"joined again as it was", pair, "rm g; ln f g", ""},
		{"one name more", pair, "rm g; ln f g; ln f h", "modified f mode 0644 owner 0:0\nmodified g mode 0644 owner 0:0 = f\nadded h = f\n"},
		{"a copy of one name is no change", pair, ": >> f", ""},
		{"linked and unlinked", "echo a > f", "ln f g; rm g", ""},
		{"renamed, with a second name", "echo a > f", "mv f g; ln g h", "deleted f\nadded g\nadded h = g\n"},
		{"an ephemeral name is left out", "echo a > f", "ln f f.pid", "ephemeral added f.pid\n"},
		{"an ephemeral name of a changed file", "true", "echo a > f; ln f f.pid", "added f\nephemeral added f.pid\n"},
		{"whiteouts are no group", "echo a > f; echo b > g; echo c > h", "rm f g h", "deleted f\ndeleted g\ndeleted h\n"},
		{"of a fifo", "true", "mkfifo p; ln p q", "added p|\nadded q|\nblocked fifo p\nblocked fifo q\n"},
		{"of a fifo that the host has", "mkfifo p; ln p q", "rm q; ln p q", ""},
		{"of a symlink", "true", "ln -s x l; ln l m", "added l -> x\nadded m -> x\n"},
		{"two groups", "true", "echo a > a1; ln a1 a2; echo b > b1; ln b1 b2", "added a1\nadded a2 = a1\nadded b1\nadded b2 = b1\n"},
	})
}

func TestHardLinksAcrossTheBase(t *testing.T) {
	for _, tt := range []struct{ name, host, view, want string }{
		{"a host file linked in", "echo a > out/f", "ln out/f in/f", "added in/f\nblocked outside-base out/f\n"},
		{"a new file", "true", "echo a > out/f; ln out/f in/f; ln out/f in/g", "added in/f\nadded in/g = in/f\nblocked outside-base out/f\n"},
		{"only outside", "echo a > out/f", "ln out/f out/g", "blocked outside-base out/g\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, "mkdir in out; "+tt.host)
			l.base = l.host + "/in"
			l.inView(tt.view)
			l.want(tt.want)
		})
	}
}

// Making a second name replaces the first one on the host: what the host did to
// it meanwhile must not be lost, though the view did not change it.
func TestHardLinkOfAFileThatTheHostChanged(t *testing.T) {
	l := newLab(t, "echo a > f; echo b > h; ln h i")
	l.inView("ln f g; rm i; ln h i")
	l.record()
	l.onHost("echo new > f; echo newer > h")
	l.want("modified f mode 0644 owner 0:0\nadded g = f\nblocked conflict f\n")
}

// What the host has already is nothing to do, but two equal files are not one.
func TestHardLinksThatTheHostHas(t *testing.T) {
	const linked = "echo b > f; ln f g"
	l := newLab(t, "echo a > f")
	l.inView(linked)
	l.record()
	l.onHost(linked)
	l.want("")

	// One that it has in part is no conflict.
	l = newLab(t, "echo a > f")
	l.inView(linked)
	l.record()
	l.onHost("echo b > f")
	l.want("modified f mode 0644 owner 0:0\nadded g = f\n")

	l = newLab(t, "echo b > f; echo b > g")
	l.inView("rm g; ln f g")
	l.want("modified f mode 0644 owner 0:0\nmodified g mode 0644 owner 0:0 = f\n")
}
