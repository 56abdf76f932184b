package upper

import (
	"testing"
)

// example is what is done on the host and then in the view, and what Diff says.
type example struct{ name, host, view, want string }

// show runs the examples, and looks again after a rebuild of the view.
func show(t *testing.T, all []example) {
	for _, tt := range all {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t, tt.host)
			l.inView(tt.view)
			if got := l.text(l.diff()); got != tt.want {
				t.Errorf("difference:\n%s\nwant:\n%s", got, tt.want)
			}
			l.unmount()
			l.mount()
			if got := l.text(l.diff()); got != tt.want {
				t.Errorf("difference after a rebuild:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	show(t, []example{
		{"nothing done is no change", "echo a > f", "cat f", ""},
		{
			"content, mode and owner of files", "echo a > f; echo b > g; echo c > h",
			"echo new > f; chmod 600 g; chown 7:8 h",
			"modified f\nmodified g mode 0600 owner 0:0\nmodified h mode 0644 owner 7:8\n",
		},
		{
			"added entries of every plannable type", "mkdir d",
			"echo n > d/n; mkdir d/e; ln -s /no/where d/l",
			"added d/e/\nadded d/l -> /no/where\nadded d/n\n",
		},
		{"a parent that was only copied up is no change", "mkdir -p a/b/c; echo x > a/b/c/f", "echo y >> a/b/c/f", "modified a/b/c/f\n"},
		{"opened for writing and not written", "echo a > f", ": >> f; exec 3<>f", ""},
		{"written back to what it was", "echo a > f", "echo b > f; echo a > f", ""},
		{"touched", "echo a > f", "touch -d 2001-01-01 f", ""},
		{
			"same size and time, other bytes", "echo a > f; touch -d 2001-01-01 f",
			"echo b > f; touch -d 2001-01-01 f", "modified f\n",
		},
		{"deleted file and symlink", "echo a > f; ln -s f l", "rm f l", "deleted f\ndeleted l\n"},
		{
			"deleted directory names everything below", "mkdir -p d/e; echo a > d/e/f; ln -s f d/l",
			"rm -r d", "deleted d\ndeleted d/e\ndeleted d/e/f\ndeleted d/l\n",
		},
		{
			"directory removed and made anew", "mkdir d; echo a > d/old; echo b > d/kept",
			"cp -p d/kept k; rm -r d; mkdir d; mv k d/kept; echo n > d/new",
			"added d/new\ndeleted d/old\n",
		},
		{
			"a tree removed and made anew, with a directory in it", "mkdir -p d/e/g; for f in d/a d/e/a d/e/b d/e/g/a; do echo $f > $f; done",
			"rm -r d; mkdir -p d/e/g; echo d/e/b > d/e/b", "deleted d/a\ndeleted d/e/a\ndeleted d/e/g/a\n",
		},
		{
			"a file removed from a tree that was copied over itself", "mkdir -p d/e; echo a > d/e/a; echo b > d/e/b",
			"cp -a d n; rm -r d; mv n d; rm d/e/a", "deleted d/e/a\n",
		},
		{
			"directory replaced by file and file by directory", "mkdir d; echo a > d/x; echo f > f",
			"rm -r d; echo d > d; rm f; mkdir f; echo y > f/y",
			"replaced d\ndeleted d/x\nreplaced f/\nadded f/y\n",
		},
		{
			"symlinks", "ln -s a l; echo f > f; ln -s b m; mkdir real; echo x > real/x; ln -s real s",
			"ln -sfn z l; rm f; ln -s q f; rm m; echo m > m; rm s; mkdir s; echo x > s/x",
			"replaced f -> q\nmodified l -> z\nreplaced m\nreplaced s/\nadded s/x\n",
		},
		{"directory mode and owner", "mkdir d; echo a > d/f", "chmod 700 d; chown 5 d", "modified d mode 0700 owner 5:0\n"},
		{"the top directory itself", "true", "chmod 700 .", "modified . mode 0700 owner 0:0\n"},
		{"added and removed again", "true", "mkdir d; echo x > d/f; rm -r d", ""},
		{"deleted and restored", "echo a > f", "cp -p f g; rm f; mv g f", ""},
		{"renamed file", "echo a > f", "mv f g", "deleted f\nadded g\n"},
		{"renamed directory is copied and deleted", "mkdir d; echo a > d/f", "mv d e", "deleted d\ndeleted d/f\nadded e/\nadded e/f\n"},
		{"setuid survives in the mode", "echo a > f", "chmod 4755 f", "modified f mode 4755 owner 0:0\n"},
		{
			"strange names", "true",
			`printf x > "$(printf 'a\nb')"; printf x > ./-n; printf x > 'trail '; printf x > "$(printf '\377')"`,
			"added -n\nadded a\\x0ab\nadded trail \nadded \\xff\n",
		},
	})
}
