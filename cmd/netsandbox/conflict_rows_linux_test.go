package main

// conflictRow is what the host, the view and again the host do in one directory.
type conflictRow struct {
	name string
	host string // before the environment exists
	view string // in the view
	edit string // on the host, behind the view's back
	// blocked lists what a plan must name then, relative to the directory.
	blocked string
	// after holds on the host when the way out was taken and the rest applied:
	// nothing of the edit was lost.
	after string
}

var conflictRows = []conflictRow{
	{"untouched", "echo a > f", "echo v >> f", "true", "", "test `cat f | tr -d '\n'` = av"},
	{"edited in place", "echo a > f", "echo v >> f", "echo h >> f", "f", "test `cat f | tr -d '\n'` = ah"},
	{"replaced by rename", "echo a > f", "echo v >> f", "echo h > n; mv n f", "f", "grep -qx h f"},
	{"deleted, and edited in the view", "echo a > f", "echo v >> f", "rm f", "f", "test ! -e f"},
	{"deleted, and replaced in the view", "echo a > f", "echo v > n; mv n f", "rm f", "f", "test ! -e f"},
	{"moved to another name", "echo a > f", "echo v >> f", "mv f g", "f", "test ! -e f; grep -qx a g"},
	{"created under a name that is new in the view", "true", "echo v > f", "echo h > f", "f", "grep -qx h f"},
	{"deleted in the view, edited on the host", "echo a > f", "rm f", "echo h > f", "f", "grep -qx h f"},
	{"deleted in the view, made anew on the host", "echo a > f", "rm f", "rm f; echo h > f", "f", "grep -qx h f"},
	{"deleted in both", "echo a > f", "rm f", "rm f", "", "test ! -e f"},
	{"mode", "echo a > f", "echo v >> f", "chmod 600 f", "f", "test `stat -c %a f` = 600; grep -qx a f"},
	{"owner", "echo a > f", "echo v >> f", "chown 7 f", "f", "test `stat -c %u f` = 7; grep -qx a f"},
	{"attribute", "echo a > f", "echo v >> f", "setfattr -n user.h -v 1 f", "f", "getfattr -n user.h f; grep -qx a f"},
	{"access list", "echo a > f", "echo v >> f", "setfacl -m u:7:rw f", "f", "getfacl -cn f | grep -q ^user:7:rw-; grep -qx a f"},
	{"only touched", "echo a > f", "echo v >> f", "touch -d 2001-01-01 f", "", "grep -qx v f"},
	{"changed and changed back", "echo a > f", "echo v >> f", "echo h > f; echo a > f", "", "grep -qx v f"},
	{"replaced by its equal", "echo a > f", "echo v >> f", "cp -a f n; mv n f", "", "grep -qx v f"},
	{"file of two names, edited by the other", "echo a > f; ln f g", "echo v >> f", "echo h >> g", "f", "grep -qx h f; grep -qx h g"},
	{"file of two names, untouched", "echo a > f; ln f g", "echo v >> f", "true", "", "grep -qx v f; grep -qx a g"},
	{"symlink led elsewhere", "ln -s a l", "ln -sfn v l", "ln -sfn h l", "l", "test `readlink l` = h"},
	{"added to a directory that the view made anew", "mkdir d; echo a > d/f", "rm -r d; mkdir d; echo v > d/n", "echo h > d/g", "d/g", "grep -qx h d/g; grep -qx v d/n; test ! -e d/f"},
	{"added to a directory that the view deleted", "mkdir d; echo a > d/f", "rm -r d", "echo h > d/g", "d/g", "grep -qx h d/g; test ! -e d/f"},
	{"added beside what the view added", "mkdir d", "echo v > d/n", "echo h > d/g", "", "grep -qx h d/g; grep -qx v d/n"},
	{"directory swapped", "mkdir d e; echo a > d/f; echo h > e/f", "echo v >> d/f", "mv d o; mv e d", "d/f", "grep -qx h d/f; grep -qx a o/f"},
	{"directory swapped for an equal one", "mkdir d; echo a > d/f", "echo v >> d/f; echo v > d/n", "cp -a d e; mv d o; mv e d", "d/f d/n", "grep -qx a d/f; test ! -e d/n"},
	{
		"directory above it swapped", "mkdir -p p/d q/d; echo a > p/d/f; echo h > q/d/f; echo h > q/d/x; echo a > p/d/x", "echo v >> p/d/f; rm p/d/x; echo v > p/d/n",
		"mv p o; mv q p", "p/d/f p/d/n p/d/x", "grep -qx h p/d/f; grep -qx h p/d/x; test ! -e p/d/n",
	},
	{"directory became a symlink", "mkdir d victim; echo a > d/f; echo h > victim/f", "echo v >> d/f", "mv d o; ln -s victim d", "d d/f", "test -L d; grep -qx h victim/f; grep -qx a o/f"},
	{"directory above it became a symlink", "mkdir -p p/d victim/d; echo a > p/d/f", "echo v > p/d/n", "mv p o; ln -s victim p", "p p/d p/d/n", "test -L p; test -z `ls victim/d`; test ! -e o/d/n"},
}
